"""A cell that spans rows or columns is read in each place that a browser shows it in, and costs what is there."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.knowledge.parsing import ReaderProcesses, read


@pytest.fixture(scope="module")
def readers() -> Iterator[ReaderProcesses]:
    readers = ReaderProcesses()
    yield readers
    readers.close()


def rows_of(markup: str) -> list[list[str]]:
    """The cells of a page's table, without the line under its first row."""
    content = "\n".join(passage.content for passage in read("x.html", f"<body>{markup}".encode()))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in content.split("\n") if line]
    return [rows[0], *rows[2:]]


@pytest.mark.parametrize(("rows", "expected"), [
    ("<th>Plan<th>Year<th>Price<tr><td rowspan=2>Pro<td>2023<td>5<tr><td>2024<td>7<tr><td colspan=2>Sum<td>12",
     ["Plan Year Price", "Pro 2023 5", "Pro 2024 7", "Sum Sum 12"]),
    ("<th rowspan=2>Plan<th colspan=2>Price<tr><th>net<th>gross<tr><td>Pro<td>5<td>6",
     ["Plan Price Price", "Plan net gross", "Pro 5 6"]),
    ("<td>a<td rowspan=2>b<td>c<tr><td>d<td>e<tr><td>f<td>g<td>h", ["a b c", "d b e", "f g h"]),
    ("<td>a<td>b<tr><td colspan=100>all<tr><td>c<td>d", ["a b", "all all", "c d"]),
    ("<td colspan=2>a<td colspan=3>b<tr><td colspan=2>c<td colspan=3>d", ["a b", "c d"]),
    ("<td rowspan=2 colspan=2>a<td>b<tr><td>c<tr><td>d<td>e<td>f", ["a a b", "a a c", "d e f"]),
    ("<td rowspan=2>a<td>b<tr><td colspan=2>c<td>d", ["a b", "a c d"]),
    ("<td>a<td rowspan=2>b<tr><td colspan=3>c", ["a b", "c b"]),
    ("<td rowspan=0>a<td>b<tr><td>c<tr><td>d", ["a b", "a c", "a d"]),
    ("<td rowspan=9>a<td>b<tbody><tr><td>c<td>d", ["a b", "c d"]),
    ("<td rowspan=3>a<td>b<tr><tr><td>c<tr><td>d<td>e", ["a b", "a c", "d e"]),
    ("<td rowspan='2px'>a<td>b<tr><td>c", ["a b", "a c"]),
    ("<td rowspan=-2>a<td colspan=0>b<tr><td colspan=two>c<td rowspan=''>d", ["a b", "c d"]),
    ("<td>a<td>b<td>c<tr><td>d", ["a b c", "d"]),
    ("<td>a<td rowspan=2>b<td rowspan=2>c<tr><td hidden>x", ["a b c"]),
])
def test_a_cell_stands_in_each_place_that_it_covers(rows, expected):
    assert rows_of(f"<table><tr>{rows}</table>") == [row.split() for row in expected]


def test_a_long_cell_stands_once_and_keeps_its_places():
    long = "word " * 60
    rows = rows_of(f"<table><tr><td>a<td>b<td>c<tr><td rowspan=2>{long}<td>d<td>e<tr><td>f<td>g</table>")
    assert rows[1:] == [[long.strip(), "d", "e"], ["", "f", "g"]]


CELLS = st.tuples(st.integers(1, 4), st.integers(0, 4))


@given(st.lists(st.lists(CELLS, max_size=4), min_size=1, max_size=6))
def test_places_cells_as_one_would_by_hand(rows):
    grid: dict[tuple[int, int], str] = {}
    begins, own, markup = set(), set(), ""
    for row, cells in enumerate(rows):
        column, markup = 0, f"{markup}<tr>"
        for columns, span in cells:
            while (row, column) in grid:
                column += 1
            text = f"{row}.{column}"
            begins.add(column)
            own.add(row)
            markup += f"<td colspan={columns} rowspan={span}>{text}"
            for place in range(columns):
                if (row, column + place) in grid:
                    break
                grid |= {(below, column + place): text for below in range(row, row + (span or len(rows)))}
    expected = []
    for row in sorted(own):
        last = max(column for below, column in grid if below == row and column in begins)
        expected.append([grid.get((row, column), "") for column in sorted(begins) if column <= last])
    if max(map(len, expected), default=0) > 1:
        assert rows_of(f"<table>{markup}</table>") == expected


LABEL = "label " * 30


@pytest.mark.parametrize("rows", [
    f"<tr><td rowspan=1000000000 colspan=1000000000>{LABEL}<td>b" + "<tr><td>c" * 1000,
    f"<tr><td rowspan=65534 colspan=1000>{LABEL}<td>b<tr><td>c",
    "<tr>" + f"<td rowspan=65534 colspan=1000>{LABEL}" * 1000 + "<tr>" * 65_534,
    "<tr>" + "<td rowspan=65534>a" * 1000 + "<tr><td>b" * 65_534,
    "<tr>" + "<td>a" * 1000 + f"<tr><td colspan=1000>{LABEL}" * 20_000,
    "<tr>" + "<td>a" * 100_000 + f"<tr><td colspan=1000>{LABEL}" * 1000,
    f"<tr><td rowspan=65534>{LABEL}<td>b" + "<tr><td>c" * 65_534,
    f"<tr><td rowspan=65534>{LABEL * 10_000}<td>b" + "<tr><td>c" * 10_000,
    f"<tr>{'<td rowspan=65534>a' * 100}<td>{LABEL * 9000}" + "<tr><td>b" * 200_000,
    "<tr>" + "".join(f"<tr><td rowspan={9999 - row}>a" for row in range(9999)),
])
def test_what_spans_make_is_in_proportion_to_what_is_there(readers, rows):
    page = f"<table>{rows}</table>".encode()
    found = readers.read("x.html", page, seconds=20, megabytes=300)
    assert sum(len(passage.content) for passage in found) < 10 * len(page)


def test_small_tables_with_large_spans_stay_small():
    page = b"<table><tr><td>a<td rowspan=99 colspan=999>b<tr><td colspan=999>c</table>" * 5_000
    assert sum(len(passage.content) for passage in read("x.html", page)) < 2 * len(page)
