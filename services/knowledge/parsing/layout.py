"""From lines with places to paragraphs: what was broken to fit is joined, rows and other line ends are kept."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from statistics import quantiles

_WIDER = 1.3  # times the usual distance of two lines: a new paragraph
_APART = 2  # times the height of a line: one too, however usual
_TALLER = 1.15  # times the height of the line before: a heading begins or ends
_GAPS = 20  # of a row; those of two are compared with one another
_INDENT = 0.7  # of a line's height
_BULLET = re.compile(r"(?:[•◦▪●■·‣–—*-]|\(?(?:\d{1,3}|[a-zA-Z])[.)]|\d{1,2}(?:\.\d{1,2}){1,3})\s")
_SENTENCE_END = re.compile(r"[.!?:…。！？]['\"”’»)\]]*$")
_IDEOGRAPH = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")  # no spaces between


@dataclass(frozen=True, slots=True)
class Line:
    """A line of words and its rectangle in points from the page's top left corner."""

    words: str
    left: float
    right: float
    top: float
    bottom: float
    is_hyphenated: bool = False
    cells: tuple["Line", ...] = ()  # its parts, where there is more room between them than it is high
    is_row: bool = False  # whether it begins a row of a table

    @property
    def height(self) -> float:
        return self.bottom - self.top


def with_rows(lines: Sequence[Line]) -> Iterator[Line]:
    """A page's lines, those marked that begin a row: where empty places of two neighbours lie below one another."""
    rows = rows_of(lines)
    gaps = [gaps_of(row) for row in rows]
    is_below = [False, *(_share(*pair) for pair in pairwise(gaps)), False]
    for row, before, after in zip(rows, is_below, is_below[1:], strict=False):
        yield replace(row[0], is_row=before or after)
        yield from row[1:]


def rows_of(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines, those that stand side by side together."""
    rows: list[list[Line]] = []
    for line in lines:
        if rows and _is_beside(rows[-1][-1], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def cells_of(row: Sequence[Line]) -> list[Line]:
    """The parts of a row from left to right."""
    return [cell for line in row for cell in line.cells or (line,)]


def _is_beside(line: Line, after: Line) -> bool:
    """Whether a line goes on to the right, as far as its places say."""
    return after.left >= line.right and abs(after.bottom - line.bottom) < min(line.height, after.height) / 4


def gaps_of(row: Sequence[Line]) -> list[tuple[float, float]]:
    """From where to where a row is empty, where that is more than it is high; the first few."""
    pairs = pairwise(cells_of(row))
    gaps = ((cell.right, after.left) for cell, after in pairs if after.left - cell.right > cell.height)
    return list(islice(gaps, _GAPS))


def _share(gaps: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> bool:
    return any(left < right_of and left_of < right for left, right in gaps for left_of, right_of in others)


def paragraphs_of(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines in reading order, those of a paragraph together."""
    paragraph: list[Line] = []
    usual = _usual_distance(lines)
    for line in lines:
        if paragraph and not _goes_on(paragraph[-1], line, usual):
            yield paragraph
            paragraph = []
        paragraph.append(line)
    if paragraph:
        yield paragraph


def _usual_distance(lines: Sequence[Line]) -> float:
    steps = [after.bottom - line.bottom for line, after in pairwise(lines)]
    steps = [step for step in steps if step > 0]
    # the lower quarter: on a page of short paragraphs most distances are between them
    return quantiles(steps, n=4)[0] if len(steps) > 1 else sum(steps)


def _goes_on(line: Line, after: Line, usual: float) -> bool:
    if _is_above(after, line):  # the next column
        return after.words[0].islower()
    step = after.bottom - line.bottom
    taller, lower = max(line.height, after.height), min(line.height, after.height)
    return step < min(max(usual, taller) * _WIDER, taller * _APART) and taller < lower * _TALLER


def join(paragraph: Sequence[Line], page: Sequence[Line]) -> tuple[str, list[int]]:
    """A paragraph's text, and where in it each of its lines begins."""
    edges = [edge for column in _columns(paragraph) for edge in [_right_edge(column, page)] * len(column)]
    text, begins = "", list[int]()
    for place, line in enumerate(paragraph):
        if place:
            text = _before(text, paragraph[place - 1], line, edges[place - 1])
        begins.append(len(text))
        text += line.words
    return text, begins


def _columns(paragraph: Sequence[Line]) -> list[list[Line]]:
    columns = [[paragraph[0]]]
    for line, after in pairwise(paragraph):
        if _is_above(after, line):
            columns.append([])
        columns[-1].append(after)
    return columns


def _is_above(line: Line, other: Line) -> bool:
    return line.bottom < other.bottom - max(line.height, other.height) / 2


def _right_edge(column: Sequence[Line], page: Sequence[Line]) -> float:
    """How far the lines of a column reach; two lines alone don't tell, so the page's others help."""
    if len(column) > 2:
        return max(line.right for line in column)
    left = min(line.left for line in column)
    return max(line.right for line in page if abs(line.left - left) < 2 * line.height or line in column)


def _before(text: str, line: Line, after: Line, edge: float) -> str:
    """What stands before the next line: the text, and a space, a line end or nothing."""
    if after.is_row:
        return f"{text}\n"
    if _is_beside(line, after):
        return f"{text} "
    if is_broken_by_hand(line, after, edge):
        return f"{text}\n"
    if line.is_hyphenated or re.search(r"[^\W\d_]-$", text):
        return text[:-1] if after.words[0].islower() else text
    if _IDEOGRAPH.match(text[-1]) and _IDEOGRAPH.match(after.words[0]):
        return text
    return f"{text} "


def is_broken_by_hand(line: Line, after: Line, edge: float) -> bool:
    """Whether a line ends though the next word had room in it, or the next one begins like an item."""
    if line.is_hyphenated:
        return False
    width = (line.right - line.left) / len(line.words)
    word = after.words.split(maxsplit=1)[0]
    if not _IDEOGRAPH.match(word) and line.right + width * (len(word) + 1) < edge:
        return True
    is_indented = after.left - line.left > _INDENT * line.height and _SENTENCE_END.search(line.words)
    return bool(is_indented or _BULLET.match(after.words))


def rectangles(lines: Sequence[Line]) -> list[tuple[float, float, float, float]]:
    """The areas that lines cover, one a column: left, right, top, bottom."""
    areas: list[tuple[float, float, float, float]] = []
    for line in lines:
        if areas and line.bottom > areas[-1][2] and line.left < areas[-1][1] and line.right > areas[-1][0]:
            left, right, top, bottom = areas.pop()
            areas.append((min(left, line.left), max(right, line.right), min(top, line.top), max(bottom, line.bottom)))
        else:
            areas.append((line.left, line.right, line.top, line.bottom))
    return areas
