"""Where lines stand on a PDF's page says what belongs together: rows stay rows, what was broken to fit is joined."""

import textwrap
from collections.abc import Sequence

import pytest
from reportlab.lib.styles import ParagraphStyle
from reportlab.platypus import Paragraph, Table

from services.knowledge.parsing import read
from tests.services.knowledge.documents import BODY, drawn, in_columns, typeset

PLANS = [["Plan", "Price", "Users"], ["Basic", "5", "10"], ["Pro", "25", "100"], ["Max", "99", "1000"]]
ROWS = "Plan Price Users\nBasic 5 10\nPro 25 100\nMax 99 1000"
SENTENCE = "The committee decided that every application must be answered within four weeks of its arrival. "


def text_of(content: bytes) -> str:
    return "\n\n".join(passage.content for passage in read("x.pdf", content))


@pytest.mark.parametrize("style", [
    [], [("ALIGN", (1, 0), (-1, -1), "RIGHT")], [("ALIGN", (0, 0), (-1, -1), "CENTER")],
    [("GRID", (0, 0), (-1, -1), 0.5, "black")],
    [("TOPPADDING", (0, 0), (-1, -1), 0), ("LEADING", (0, 0), (-1, -1), 11)],
])
@pytest.mark.parametrize("width", [60, 150])
def test_a_table_keeps_its_rows(style, width):
    found = text_of(typeset(Paragraph(SENTENCE * 2, BODY), Table(PLANS, colWidths=[width] * 3, style=style)))
    assert found.replace("\n\n", "\n").endswith(f"\n{ROWS}")


@pytest.mark.parametrize("step", [12, 14, 20, 24])
def test_a_table_drawn_cell_by_cell_keeps_its_rows(step):
    cells = [(50 + 150 * column, 700 - step * row, text) for row, line in enumerate(PLANS)
             for column, text in enumerate(line)]
    assert text_of(drawn(cells)) == ROWS


@pytest.mark.parametrize("size", [9, 10, 14])
@pytest.mark.parametrize("alignment", [0, 4])
@pytest.mark.parametrize("width", [150, 450])
def test_a_paragraph_has_no_rows_whatever_its_setting(size, alignment, width):
    style = ParagraphStyle("x", fontSize=size, leading=size * 1.2, alignment=alignment, rightIndent=450 - width)
    marked = SENTENCE.replace("every", "<b>every</b>").replace("four weeks", "<i>four</i> <b>weeks</b>") * 6
    assert text_of(typeset(Paragraph(marked, style))) == (SENTENCE * 6).strip()


def side_by_side(*columns: Sequence[str], width: float = 240, step: float = 14) -> bytes:
    """A PDF of columns that are written row by row."""
    return drawn([
        (40 + width * column, 780 - step * row, lines[row])
        for row in range(max(map(len, columns))) for column, lines in enumerate(columns) if row < len(lines)
    ])


def wrapped(text: str, first: str, width: int = 38) -> list[str]:
    return textwrap.wrap(f"{first} starts here. {text}", width)


@pytest.mark.parametrize(("left", "right"), [(6, 6), (6, 4), (3, 6)])
@pytest.mark.parametrize("heading", [[], ["A title across both of the columns, which is so long that it crosses them"]])
def test_columns_that_are_written_row_by_row_are_read_one_after_the_other(left, right, heading):
    texts = [wrapped(SENTENCE * left, "The left one"), wrapped(SENTENCE * right, "The right one")]
    content = side_by_side(*texts)
    if heading:
        content = drawn([(40, 810, heading[0]), *(
            (40 + 240 * column, 780 - 14 * row, lines[row])
            for row in range(max(map(len, texts))) for column, lines in enumerate(texts) if row < len(lines)
        )])
    expected = " ".join([*heading, *(" ".join(lines) for lines in texts)])
    assert " ".join(text_of(content).split()) == expected


def test_three_columns_are_read_one_after_the_other():
    texts = [wrapped(SENTENCE * 4, name, 26) for name in ("One", "Two", "Three")]
    assert " ".join(text_of(side_by_side(*texts, width=175)).split()) == " ".join(" ".join(lines) for lines in texts)


def test_words_broken_at_the_end_of_a_column_are_joined():
    lines = ["It begins here and has a hyphen-", "ated word and then another hy-", "phen in the next of its lines,",
             "which are full, as in a news-", "paper."]
    found = text_of(side_by_side(lines, lines))
    assert " ".join(found.split()) == " ".join([
        "It begins here and has a hyphenated word and then another hyphen in the next of its lines, which are full, "
        "as in a newspaper."
    ] * 2)


def test_a_passage_of_a_column_is_where_the_column_is():
    texts = [wrapped(SENTENCE * 9, "The left one"), wrapped(SENTENCE * 9, "The right one")]
    left, right = (passage.positions[0] for passage in read("x.pdf", side_by_side(*texts)))
    assert left[2] < right[1] and left[3] == pytest.approx(right[3], abs=1)


@pytest.mark.parametrize("rows", [
    [("delete a chat", "removes it for good"), ("keep it for now", "leaves all as it is"),
     ("rename one of them", "gives it another name"), ("stop an answer", "keeps what was said"),
     ("ask it again", "begins")],
    [("12 May 2024 at 10", "14 June 2024 at 11")] * 6,
    [("What does it cost to begin?", "Nothing for the first month."), ("May I bring a dog?", "Yes, on a lead."),
     ("Who answers my questions here?", "Our own staff, by telephone."), ("Where is it?", "In the old town."),
     ("When does it open?", "At nine, but on Sundays.")],
    [("name", "what it is called by its owner"), ("size", "how large it is on the disk"), ("date", "when it was made"),
     ("owner", "who may change it and who may not"), ("kind", "what is in it")],
    [("mode", "read only"), ("mode", "read only"), ("mode", "read only"), ("mode", "read only"), ("mode", "read only")],
    [("one of three rows that are alike", "says what the others say too")] * 3,
])
def test_a_table_of_words_is_read_row_by_row(rows):
    assert text_of(side_by_side(*zip(*rows, strict=True))).split("\n") == [" ".join(row) for row in rows]


def test_columns_of_a_text_are_no_rows():
    assert "\n" not in text_of(in_columns(SENTENCE * 9, SENTENCE * 6)).replace("\n\n", "")


def test_an_item_goes_on_below_the_space_behind_its_bullet():
    assert text_of(drawn([
        (72, 700, "1."), (92, 700, "The first item is written in a line that"), (92, 688, "goes on in the next."),
        (72, 676, "2."), (92, 676, "The second item is written in a line too"), (92, 664, "and goes on."),
    ])) == (
        "1. The first item is written in a line that goes on in the next.\n"
        "2. The second item is written in a line too and goes on."
    )
