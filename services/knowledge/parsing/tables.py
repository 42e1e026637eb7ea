"""A page's table as Markdown: a cell that spans rows or columns says its words in each place that it covers."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from selectolax.lexbor import LexborNode

from services.knowledge.parsing.elements import Line, children_of, line_of, walk, words

_COLUMNS, _ROWS = 1_000, 65_534  # that a cell may span, as in browsers
_LABEL = 120  # characters; a longer cell says its words in its first place only
_GROWTH = 10  # times as many cells or characters; a table whose spans make more is written as its cells stand


class _Cell(NamedTuple):
    text: str
    columns: int = 1
    rows: int = 1


class _Placed(NamedTuple):
    """A cell from one column up to another, down to the last row that it covers."""

    text: str
    begin: int
    end: int
    last: int


def table(node: LexborNode) -> str:
    """A table's caption and rows; nothing where it only lays out a page: one column, or parts in its cells."""
    captions, groups = list[str](), list[list[list[_Cell]]]()
    for part in children_of(node):
        if part.tag == "caption":
            captions.append(line_of(part))
            continue
        groups.append([])
        for row in children_of(part):
            cells = _cells(row)
            if cells is None:
                return ""
            groups[-1].append(cells)
    rows = _rows(groups)
    if max(map(len, rows), default=0) < 2:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]
    return "\n".join([*(f"{caption}\n" for caption in captions), *lines])


def _cells(row: LexborNode) -> list[_Cell] | None:
    """A row's cells; None where one of them has parts."""
    cells = []
    for cell in children_of(row):
        line = Line()
        walk(cell, line)
        if line.has_parts:
            return None
        columns, rows = _number(cell, "colspan"), _number(cell, "rowspan")
        text = words(line.taken()).replace("|", r"\|")
        cells.append(_Cell(text, min(columns or 1, _COLUMNS), min(rows or _ROWS, _ROWS)))
    return cells


def _number(cell: LexborNode, name: str) -> int:
    found = re.match(r"\s*\+?(\d{1,9})", cell.attributes.get(name) or "")
    return int(found[1]) if found else 1


def _rows(groups: Sequence[Sequence[Sequence[_Cell]]]) -> list[list[str]]:
    """The words of each row that says something, place by place."""
    cells = [cell for group in groups for row in group for cell in row]
    plain = [[cell.text for cell in row] for group in groups for row in group if any(cell.text for cell in row)]
    lines = _lines(groups) if any(cell.columns > 1 or cell.rows > 1 for cell in cells) else None
    if lines is None:
        return plain
    columns = sorted({cell.begin for line in lines for cell in line})  # where no cell begins, there is no column
    room = _GROWTH * _size(cell.text for cell in cells)
    rows = []
    for line in lines:
        rows.append(_places(line, columns))
        room -= _size(rows[-1])
        if room < 0:
            return plain
    return rows


def _size(texts: Iterable[str]) -> int:
    """About how many characters cells take, without what no cell says twice."""
    return sum(min(len(text), _LABEL) + 3 for text in texts)


def _lines(groups: Sequence[Sequence[Sequence[_Cell]]]) -> list[list[_Placed]] | None:
    """The cells that each row shows, its own ones and those from above; None where those are far more."""
    room = _GROWTH * sum(len(row) + 1 for group in groups for row in group)
    lines = []
    for group in groups:  # a cell ends with its group
        above: list[_Placed] = []
        for number, row in enumerate(group):
            line = _line(row, above, number)
            room -= len(line) + 1
            if room < 0:
                return None
            above = [_again(cell) for cell in line if cell.last > number]
            if any(cell.text for cell in row):
                lines.append(line)
    return lines


def _line(row: Sequence[_Cell], above: Sequence[_Placed], number: int) -> list[_Placed]:
    """A row's own cells, put where those from above leave room."""
    line: list[_Placed] = []
    place, column = 0, 0
    for cell in row:
        while place < len(above) and above[place].begin <= column:
            line.append(above[place])
            column = above[place].end
            place += 1
        end = column + cell.columns
        if place < len(above):
            end = min(end, above[place].begin)
        line.append(_Placed(cell.text, column, end, number + cell.rows - 1))
        column = end
    return [*line, *above[place:]]


def _places(line: Sequence[_Placed], columns: Sequence[int]) -> list[str]:
    """What a row says in each column."""
    texts: list[str] = []
    for cell in line:
        begin, end = bisect_left(columns, cell.begin), bisect_left(columns, cell.end)
        texts += [""] * (begin - len(texts))
        texts += [cell.text, *[_again(cell).text] * (end - begin - 1)]
    return texts


def _again(cell: _Placed) -> _Placed:
    """What a cell says in its other places."""
    return cell if len(cell.text) <= _LABEL else cell._replace(text="")
