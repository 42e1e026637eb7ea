"""The built-in model: no network, no words of its own. It quotes the passages' best sentences.

A quote counts by the question's words that it has, rare ones more; the title above it, its passage's rank and what
the question asks for shift that. Where none has enough of them, nothing is quoted: a guess with a citation is worse.
Every quote stands in its passage character by character; `[ID:n]` behind it says in which.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from unicodedata import east_asian_width

from db.text_index import search_words
from services.events import End, Event, TextDelta, Usage
from services.rag.citations import parse_ids
from services.rag.likeness import likeness
from services.rag.prompts import ModelRequest
from services.rag.questions import Asked, asked_by, begins_with, says_what_it_is
from services.rag.quotes import Quote, quotes_of, units_of
from services.rag.retrievers import Document, is_german
from services.rag.small_talk import is_small_talk

__all__ = ["ExtractiveChatModel", "best_quotes", "is_small_talk", "quotes_of"]

MOST_QUOTES = 3
NOTHING_FITS = (
    "I found nothing in the documents that answers this; I only quote them, so for an answer in a model's own "
    "words set CHATKEEP_MODEL_BASE_URL and CHATKEEP_MODEL_NAME and restart the server."
)
_UNKNOWN = 0.5  # how many quotes have a word that none has: it is rarer than any other
_LEAST = 0.38  # how much of the question the best quote covers; with less it would be a guess
_WORTH = 0.4  # a further quote has to bring this part of what the first one brings
_REPEATED = 0.5  # what a word that is quoted already still counts, if the quote covers the whole question
_BESIDE, _ABOVE = 0.7, 0.6  # what a word counts beside the quote (Quote.beside), and in its title
_RANK = 0.08  # how much less a passage counts than the one before it
_SHORT, _LONG = 40, 60  # words that cost nothing, and that halve what a quote with so many more counts
_ROW = 0.5  # what a table's row counts that is about something else than is asked for
_CODE = 0.6  # what code counts where the question doesn't ask how to do something
_DEFINES, _BEGINS, _NUMBERED = 2.0, 1.4, 1.5  # a definition, a sentence about the thing, a number that is asked for
_NUMBER = re.compile(r"(?<![\w.])\d")  # not the one of a name, as `BM25`


class ExtractiveChatModel:
    """Answers with one to three quotes, as many as fit; with one sentence of advice where none does."""

    name = "extractive"

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        quotes = best_quotes(request.question, request.passages)
        shown = (_shown(part, request.quote) for quote in quotes for part in (quote.head, quote) if part)
        text = "\n\n".join(dict.fromkeys(shown)) or NOTHING_FITS
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


def best_quotes(question: str, passages: Sequence[Document]) -> list[Quote]:
    """The quotes that cover most of the question, best first; none where the best would be a guess."""
    candidates = _candidates(_askable(question, passages), passages)
    chosen: list[Quote] = []
    said: dict[str, float] = {}
    first = 0.0
    while able := [each for each in candidates if chosen or each.covered >= _LEAST]:
        gain, best = max(((each.gain(said), each) for each in able), key=lambda pair: pair[0])
        first = first or gain
        if not gain or gain < first * _WORTH or len(chosen) == MOST_QUOTES:
            break
        chosen.append(best.quote)
        candidates.remove(best)
        said |= {word: max(found, said.get(word, 0)) for word, found in best.found.items()}
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A quote, the weights of the question's words as far as it has them, and what shifts their sum.

    `covered`, from 0 to 1, is how much of the question it has.
    """

    quote: Quote
    found: Mapping[str, float]
    covered: float
    factor: float

    def gain(self, said: Mapping[str, float]) -> float:
        """What it adds to what is said already. Equals of a quote that covers little would only be more noise."""
        known = 1 - _REPEATED * self.covered
        return self.factor * sum(
            weight - known * min(weight, said.get(word, 0)) for word, weight in self.found.items()
        )


def _candidates(asked: Asked, passages: Sequence[Document]) -> list[_Candidate]:
    units = (unit for n, passage in enumerate(passages) for unit in units_of(passage.text, n))
    quotes = list(_distinct(unit for unit in units if not _cites(unit, len(passages))))
    inside = [_shares(asked.words, quote.words) for quote in quotes]
    holders = Counter(word for shares in inside for word in shares)
    weights = {word: math.log(1 + len(quotes) / max(holders[word], _UNKNOWN)) for word in asked.words}
    above = [_shares(asked.words, _titles(passage)) for passage in passages]
    candidates = []
    for quote, own in zip(quotes, inside, strict=True):
        beside, titles = _shares(asked.words, quote.beside), above[quote.passage]
        found = {
            word: weight * max(own.get(word, 0), _BESIDE * beside.get(word, 0), _ABOVE * titles.get(word, 0))
            for word, weight in weights.items()
        }
        covered = sum(found.values()) / sum(weights.values()) if weights else 0.0
        candidates.append(_Candidate(quote, found, covered, _factor(quote, asked)))
    return candidates


def _cites(quote: Quote, count: int) -> bool:
    """Whether its own text would be read as a citation of one of so many passages."""
    return any(parse_ids(part.text, count) for part in (quote.head, quote) if part)


def _askable(question: str, passages: Sequence[Document]) -> Asked:
    """What a question asks for; in a language that isn't the passages' they can have its names only."""
    asked = asked_by(question)
    held = {word for passage in passages for word in search_words(passage.text)}
    foreign = {is_german(search_words(question)), is_german(held)} == {True, False}
    known = _shares(asked.words, held)
    return replace(asked, words=tuple(word for word in asked.words if word in known or not (foreign or _is_pair(word))))


def _is_pair(word: str) -> bool:
    """Whether it is two characters of a text without spaces, which may be the ends of two words."""
    return east_asian_width(word[0]) == "W"


def _shares(asked: Iterable[str], words: Iterable[str]) -> dict[str, float]:
    """For each word that is asked for, how like it the likest of the words is; none for 0."""
    among = set(words)
    likest = {word: max((likeness(word, other) for other in among), default=0.0) for word in asked}
    return {word: share for word, share in likest.items() if share}


def _titles(passage: Document) -> list[str]:
    """The words of the title above a passage and of its document's name."""
    title = str(passage.metadata.get("heading") or "").rpartition(" > ")[2]
    return search_words(f"{title}\n{passage.metadata.get('document_name') or ''}")


def _factor(quote: Quote, asked: Asked) -> float:
    """What its passage's rank, its length and the form of the question make of a quote."""
    factor = 1 / (1 + _RANK * quote.passage) / (1 + max(len(quote.words) - _SHORT, 0) / _LONG)
    if quote.is_code and not asked.steps:
        factor *= _CODE
    if quote.about and not _shares(asked.words, quote.about | quote.beside):
        factor *= _ROW
    if asked.number and _NUMBER.search(quote.text):
        factor *= _NUMBERED
    if asked.subject and not quote.is_code and begins_with(quote.text, asked.subject):
        factor *= _DEFINES if says_what_it_is(quote.words, asked.subject) else _BEGINS
    return factor


def _distinct(quotes: Iterable[Quote]) -> Iterator[Quote]:
    """Each text once: neighbouring passages overlap."""
    seen: set[str] = set()
    for quote in quotes:
        if quote.text not in seen:
            seen.add(quote.text)
            yield quote
