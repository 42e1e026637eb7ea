"""The built-in model: no network, no words of its own. It quotes the passages' best sentences.

Every quote stands in its passage character by character; `[ID:n]` behind it says in which.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from db.text_index import search_words
from services.events import End, Event, TextDelta, Usage
from services.rag.prompts import ModelRequest
from services.rag.retrievers import question_words

MOST_QUOTES = 4
NOTHING_FITS = (
    "I found nothing in the documents that answers this; I only quote them, so for an answer in a model's own "
    "words set CHATKEEP_MODEL_BASE_URL and CHATKEEP_MODEL_NAME and restart the server."
)
_LEAST_WORDS, _MOST_CHARACTERS, _MOST_CODE_LINES = 3, 600, 12
_WORTH = 0.4  # a further quote has to bring this part of what the first one brings
_REPEATED = 0.3  # what a question's word still counts that is quoted already

_FENCE = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[^\n]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)(?P<closed>)[ \t]*$|\Z)", re.M | re.S
)
_NOT_PROSE = re.compile(
    r"^[ ]{0,3}#{1,6}(?:[ \t][^\n]*)?$"  # a heading
    r"|^[^\n]+\n[ ]{0,3}(?:=+|-{2,})[ \t]*$"  # a heading that is underlined
    r"|^[ \t]*\|[^\n]*$"  # a table's row
    r"|^[ \t]*(?:[-*_][ \t]*){3,}$"  # a rule
    r"|<!--.*?-->",
    re.M | re.S,
)
_BLOCKS = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t])")
_MARKER = re.compile(r"\s*(?:>[ \t]*)*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?")
# A full stop behind a single letter (e.g., z. B., an initial) ends nothing.
_SENTENCE = re.compile(
    r"""\S.*?(?:(?:(?<!\b[^\W\d_])\.|[!?…])["'”’»)\]*_`]*(?=\s+[^\sa-z]|\s*\Z)|[。！？][」』）”]*|(?=\s*\Z))""", re.S
)


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence or a whole code block, where it stands, and the words it is found by."""

    passage: int
    position: int
    text: str
    words: frozenset[str]
    is_code: bool = False


class ExtractiveChatModel:
    """Answers with two to four quotes, as many as fit; with one sentence of advice where none does."""

    name = "extractive"

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        quotes = best_quotes(request.question, [passage.text for passage in request.passages])
        text = "\n\n".join(_shown(quote, request.quote) for quote in quotes) or NOTHING_FITS
        words = re.findall(r"\s*\S+", text)
        for word in words:
            yield TextDelta(word)
        read = sum(len(passage.text.split()) for passage in request.passages)
        yield End(usage=Usage(read + len(request.question.split()), len(words)))


def _shown(quote: Quote, cites: bool) -> str:
    if not cites:
        return quote.text
    # Behind a closing fence a mark would be part of the code.
    return f"{quote.text}{chr(10) if quote.is_code else ''} [ID:{quote.passage}]"


def best_quotes(question: str, passages: Sequence[str]) -> list[Quote]:
    """The quotes that cover most of the question, rare words counting more, in the passages' order."""
    candidates = list(_distinct(quote for n, text in enumerate(passages) for quote in quotes_of(text, n)))
    holders = Counter(word for quote in candidates for word in quote.words)
    known = [word for word in question_words(question) if holders[word]]
    weights = {word: math.log(1 + len(candidates) / holders[word]) for word in known}
    chosen: list[Quote] = []
    first = 0.0
    while candidates and len(chosen) < MOST_QUOTES:
        said = {word for quote in chosen for word in quote.words}
        gain, best = max(((_gain(quote, weights, said), quote) for quote in candidates), key=lambda pair: pair[0])
        first = first or gain
        if not gain or gain < first * _WORTH:
            break
        chosen.append(best)
        candidates.remove(best)
    return sorted(chosen, key=lambda quote: (quote.passage, quote.position))


def _gain(quote: Quote, weights: dict[str, float], said: set[str]) -> float:
    found = sum(weight * (_REPEATED if word in said else 1) for word, weight in weights.items() if word in quote.words)
    # Passages come best first; of two equal sentences the better passage's wins.
    return found / (1 + 0.05 * quote.passage)


def _distinct(quotes: Iterable[Quote]) -> Iterator[Quote]:
    """Each text once: neighbouring passages overlap."""
    seen: set[str] = set()
    for quote in quotes:
        if quote.text not in seen:
            seen.add(quote.text)
            yield quote


def quotes_of(text: str, passage: int = 0) -> list[Quote]:
    """All that a passage offers: its sentences and its short code blocks, not its headings and tables."""
    quotes: list[Quote] = []
    start = 0
    for block in _FENCE.finditer(text):
        quotes += _sentences(text, start, block.start(), passage)
        if block["code"].count("\n") <= _MOST_CODE_LINES and block["closed"] is not None:
            # The line that leads to a block says what the block is for.
            lead = text[start : block.start()].rstrip().rpartition("\n")[2]
            words = frozenset(search_words(f"{lead} {block['code']}"))
            quotes.append(Quote(passage, block.start(), block[0], words, is_code=True))
        start = block.end()
    return quotes + _sentences(text, start, len(text), passage)


def _sentences(text: str, start: int, end: int, passage: int) -> list[Quote]:
    found: list[Quote] = []
    for block_start, block_end in _between(_NOT_PROSE, text, start, end):
        for item_start, item_end in _between(_BLOCKS, text, block_start, block_end):
            after_marker = _MARKER.match(text, item_start, item_end)
            prose = after_marker.end() if after_marker else item_start
            for sentence in _SENTENCE.finditer(text, prose, item_end):
                words = search_words(sentence[0])
                if len(words) >= _LEAST_WORDS and len(sentence[0]) <= _MOST_CHARACTERS:
                    found.append(Quote(passage, sentence.start(), sentence[0], frozenset(words)))
    return found


def _between(separator: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The pieces of `text[start:end]` that the separator parts."""
    for mark in separator.finditer(text, start, end):
        yield start, mark.start()
        start = mark.end()
    yield start, end


_GREETINGS = """
    hi|hello|hey|hiya|howdy|greetings|good morning|good afternoon|good evening|good day
    how are you|how s it going|whats up|what s up
    there|all|everyone|everybody|again|today|thanks|thank you|thx|ty|cheers|many thanks|thanks a lot
    thank you very much|thank you so much|so much|very much|a lot
    hallo|hi zusammen|zusammen|guten tag|guten morgen|guten abend|moin|moin moin|servus|grüß gott|gruss gott
    grüezi|wie geht es dir|wie geht es ihnen|wie gehts|wie geht s|danke|danke schön|dankeschön|danke sehr
    vielen dank|besten dank|herzlichen dank|tausend dank
    bonjour|bonsoir|salut|coucou|ça va|comment ça va|comment allez vous|merci|merci beaucoup|merci bien
    mille mercis|à tous
    hola|buenos días|buenas tardes|buenas noches|buenas|buen día|qué tal|cómo estás|cómo está|gracias
    muchas gracias|mil gracias|a todos
    你好|您好|你们好|大家好|嗨|哈喽|哈啰|早|早安|早上好|上午好|中午好|下午好|晚上好|你好吗|你好啊|谢谢|谢谢你|谢谢您|多谢|感谢|非常感谢
    謝謝|謝謝你|謝謝您|多謝|你們好
    こんにちは|こんばんは|おはよう|おはようございます|やあ|もしもし|はじめまして|初めまして|お元気ですか|元気ですか|ありがとう
    ありがとうございます|ありがとうございました|どうもありがとう|どうもありがとうございます|どうも|感謝します
"""
_FILLERS = {"there", "all", "everyone", "everybody", "again", "today", "so much", "very much", "a lot", "zusammen"}


def _phrases(listed: Iterable[str]) -> str:
    return "|".join(sorted((" ".join(search_words(phrase)) for phrase in listed), key=len, reverse=True))


_ALL = [phrase for line in _GREETINGS.split("\n") for phrase in line.strip().split("|") if phrase]
_SMALL_TALK = re.compile(
    rf"(?:{_phrases(phrase for phrase in _ALL if phrase not in _FILLERS)})(?: (?:{_phrases(_ALL)})){{0,3}}"
)


def is_small_talk(text: str) -> bool:
    """Whether a text is a greeting or thanks and no more (English, German, French, Spanish, Chinese, Japanese)."""
    return len(text) <= 80 and _SMALL_TALK.fullmatch(" ".join(search_words(text))) is not None
