"""Where lines stand on a PDF's page says what belongs together: rows stay rows, and what was broken to fit is joined."""

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
