"""Columns of text that a PDF has row by row, put one after the other.

Where lines with the same empty places below one another are text that goes on, and no table: its lines are full,
have several words and begin within sentences.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf

from services.knowledge.parsing.layout import Line, cells_of, gaps_of, is_broken_by_hand, rows_of

_LINES = 4  # of a column, at least
_WORDS = 3  # of its lines, on average
_Gap = tuple[float, float]


def in_reading_order(lines: Sequence[Line]) -> list[Line]:
    """A page's lines; those of columns that came row by row are column by column."""
    rows = rows_of(lines)
    ordered: list[Line] = []
    begin = 0
    while begin < len(rows):
        end, gaps = _block(rows, begin)
        columns = [list(_column(rows[begin:end], *sides)) for sides in _sides(gaps)]
        is_text = gaps and all(_is_text(column) for column in columns)
        ordered += (line for lines in (columns if is_text else rows[begin:end]) for line in lines)
        begin = end
    return ordered


def _block(rows: Sequence[Sequence[Line]], begin: int) -> tuple[int, list[_Gap]]:
    """Where the rows that have the same gaps end, each close below the one before; and these gaps."""
    gaps = gaps_of(rows[begin])
    end = begin + 1
    while gaps and end < len(rows) and _is_close(rows[end - 1][0], rows[end][0]):
        cells = cells_of(rows[end])
        empty = [(-inf, cells[0].left), *gaps_of(rows[end]), (cells[-1].right, inf)]
        common = [(max(left, gap[0]), min(right, gap[1])) for gap in gaps for left, right in empty]
        common = [(left, right) for left, right in common if right - left > cells[0].height]
        if len(common) < len(gaps):
            break
        gaps = common
        end += 1
    return end, gaps


def _is_close(line: Line, after: Line) -> bool:
    return 0 < after.bottom - line.bottom < 2 * max(line.height, after.height)


def _sides(gaps: Sequence[_Gap]) -> Iterator[_Gap]:
    """From where to where the columns between gaps may reach."""
    yield from pairwise([-inf, *(sum(gap) / 2 for gap in gaps), inf])


def _column(rows: Sequence[Sequence[Line]], left: float, right: float) -> Iterator[Line]:
    for row in rows:
        yield from (cell for cell in cells_of(row) if left <= cell.left < right)


def _is_text(column: Sequence[Line]) -> bool:
    if len(column) < _LINES or sum(len(line.words.split()) for line in column) < _WORDS * len(column):
        return False
    edge = max(line.right for line in column)
    ended = sum(is_broken_by_hand(line, after, edge) for line, after in pairwise(column))
    going_on = sum(line.words[0].islower() for line in column)
    return ended * 4 <= len(column) <= going_on * 4
