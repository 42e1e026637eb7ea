"""What a passage offers to be quoted: its sentences, its short code blocks, its tables' rows.

Every quote stands in its passage character by character.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from db.text_index import search_words

_LEAST_WORDS, _MOST_CHARACTERS, _MOST_CODE_LINES = 3, 600, 12
_LEAST_CLAUSE, _MOST_OPEN_LINES = 8, 3  # words of a lead that says something; lines of a text without a full stop

_FENCES = ("```", "~~~")
_LEADS = tuple(":：,;，；")
_CLOSED = re.compile(r"""[.!?…。！？]["'”’»)\]*_`」』）]*$""")

FENCE = re.compile(
    r"^[ \t]*(?P<fence>```++|~~~++)[^\n]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)(?P<closed>)[ \t]*$|\Z)", re.M | re.S
)
_NOT_PROSE = re.compile(
    r"^[ ]{0,3}#{1,6}(?:[ \t][^\n]*)?$"  # a heading
    r"|^[^\n]+\n[ ]{0,3}(?:=+|-{2,})[ \t]*$"  # a heading that is underlined
    r"|^[ \t]*\|[^\n]*$"  # a table's row
    r"|^[ \t]*(?:[-*_][ \t]*){3,}$"  # a rule
    r"|!\[[^]\n]*\]\([^)\n]*\)"  # a picture
    r"|<!--.*?-->",
    re.M | re.S,
)
_BLOCKS = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t])")
_MARKER = re.compile(r"\s*(?:>[ \t]*)*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?")
# A full stop behind a single letter (e.g., z. B., an initial) ends nothing.
_SENTENCE = re.compile(
    r"""\S.*?(?:(?:(?<!\b[^\W\d_])\.|[!?…])["'”’»)\]*_`]*(?=\s+[^\sa-z]|\s*\Z)|[。！？][」』）”]*"""
    r"|(?<=\S)(?=\s*\Z))", re.S
)
_GOES_ON = re.compile(r"\n\s*(?=[a-zäöüß])")  # behind a code block, in the middle of its sentence
_LITERAL_QUESTION = re.compile(r"""(["'])(?:(?!\1)[^\n])*[?？]\1""")  # an example's question answers nothing
_TABLE = re.compile(r"(?:^[ \t]*\|[^\n]*(?:\n|\Z))+", re.M)
_ROW = re.compile(r"^[ \t]*\|[ \t]*(?P<cells>[^\n]*?)[ \t]*\|?[ \t]*$", re.M)
_RULE = re.compile(r"(?=[^-]*-)[\s|:-]+")  # between a table's head and its rows


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence, a table's row or a whole code block, where it stands, and the words it is found by.

    `beside` has words that say what it is about and aren't in it: a row's column names, the line before a block.
    `about` has those of a row's first cell, which say what the others are said of; `head` is the names of its columns,
    where that cell is no name itself (`PORT`). `is_code`: it ends with a code block's fence.
    """

    passage: int
    position: int
    text: str
    words: tuple[str, ...]
    beside: frozenset[str] = frozenset()
    about: frozenset[str] = frozenset()
    head: "Quote | None" = None
    is_code: bool = False


def quotes_of(text: str, passage: int = 0) -> list[Quote]:
    """All that a passage offers, but for its headings, long code blocks and tables' heads."""
    quotes: list[Quote] = []
    start = 0
    for block in FENCE.finditer(text):
        quotes += _between_code(text, start, block.start(), passage)
        start = block.end()
        if block["code"].count("\n") <= _MOST_CODE_LINES and block["closed"] is not None:
            quotes.append(_code(text, block, passage))
            start = quotes[-1].position + len(quotes[-1].text)
    return quotes + _between_code(text, start, len(text), passage)


def units_of(text: str, passage: int = 0) -> list[Quote]:
    """What can be understood alone: a line that leads to a code block (`Put it back:`) is one quote with the block."""
    units: list[Quote] = []
    for quote in quotes_of(text, passage):
        leads = bool(units) and _leads_to(units[-1], quote, text)
        units.append(_joined(units.pop(), quote, text) if leads else quote)
    return [whole for unit in units if (whole := _find_whole(unit, text))]


def _find_whole(unit: Quote, text: str) -> Quote | None:
    """The unit, if nothing of it is missing: its end may stand below it, or (of code torn from its fences) nowhere.

    What leads on with a colon and is long enough to say something itself does so without the colon.
    """
    if unit.is_code or unit.about or _CLOSED.search(unit.text):
        return unit
    if unit.text.endswith(_LEADS):
        return replace(unit, text=unit.text[:-1]) if len(unit.words) >= _LEAST_CLAUSE else None
    after = text[unit.position + len(unit.text) :].lstrip()
    torn = unit.text.count("\n") >= _MOST_OPEN_LINES
    return None if torn or after.startswith(_FENCES) else unit


def _joined(lead: Quote, block: Quote, text: str) -> Quote:
    whole = text[lead.position : block.position] + block.text
    return replace(block, position=lead.position, text=whole, words=lead.words + block.words)


def _leads_to(lead: Quote, quote: Quote, text: str) -> bool:
    is_block = quote.text.lstrip().startswith(_FENCES)
    between = text[lead.position + len(lead.text) : quote.position]
    return is_block and not lead.about and not _CLOSED.search(lead.text) and not lead.is_code and not between.strip()


def _code(text: str, block: re.Match[str], passage: int) -> Quote:
    """A code block, with the rest of its sentence where that goes on behind it."""
    lead = text[: block.start()].rstrip().rpartition("\n")[2]  # it says what the block is for
    end = block.end()
    goes_on = _GOES_ON.match(text, end)
    if goes_on:
        ends = (pattern.search(text, goes_on.end()) for pattern in (_BLOCKS, FENCE))
        rest = _SENTENCE.match(text, goes_on.end(), min((found.start() for found in ends if found), default=len(text)))
        end = rest.end() if rest else end
    words = search_words(_LITERAL_QUESTION.sub(" ", block["code"]) + text[block.end() : end])
    return Quote(
        passage, block.start(), text[block.start() : end], tuple(words), frozenset(search_words(lead)),
        is_code=end == block.end(),
    )


def _between_code(text: str, start: int, end: int, passage: int) -> list[Quote]:
    return sorted(
        [*_sentences(text, start, end, passage), *_rows(text, start, end, passage)],
        key=lambda quote: quote.position,
    )


def _sentences(text: str, start: int, end: int, passage: int) -> Iterator[Quote]:
    for block_start, block_end in _between(_NOT_PROSE, text, start, end):
        for item_start, item_end in _between(_BLOCKS, text, block_start, block_end):
            after_marker = _MARKER.match(text, item_start, item_end)
            prose = after_marker.end() if after_marker else item_start
            for sentence in _SENTENCE.finditer(text, prose, item_end):
                words = tuple(search_words(sentence[0]))
                if len(words) >= _LEAST_WORDS and len(sentence[0]) <= _MOST_CHARACTERS:
                    yield Quote(passage, sentence.start(), sentence[0], words)


def _rows(text: str, start: int, end: int, passage: int) -> Iterator[Quote]:
    """The rows below a table's head, without their outer bars."""
    for table in _TABLE.finditer(text, start, end):
        rows = list(_ROW.finditer(text, table.start(), table.end()))
        head: Quote | None = None
        if len(rows) > 1 and _RULE.fullmatch(rows[1][0]):
            head = _row(rows[0], passage)
            rows = rows[2:]
        for row in (_row(row, passage, head) for row in rows):
            if len(row.words) >= _LEAST_WORDS and len(row.text) <= _MOST_CHARACTERS:
                yield row


def _row(row: re.Match[str], passage: int, head: Quote | None = None) -> Quote:
    cells = row["cells"]
    beside = frozenset(head.words) if head else frozenset[str]()
    about = frozenset(search_words(cells.partition("|")[0]))
    names = None if cells.startswith("`") or not beside else head
    return Quote(passage, row.start("cells"), cells, tuple(search_words(cells)), beside, about, names)


def _between(separator: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The pieces of `text[start:end]` that the separator parts."""
    for mark in separator.finditer(text, start, end):
        yield start, mark.start()
        start = mark.end()
    yield start, end
