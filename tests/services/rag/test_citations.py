"""Citations are read from the finished text; what isn't there, or out of range, is no citation."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rag.citations import group_sources, narrow, parse_ids, parse_last_line
from services.rag.retrievers import Document


@pytest.mark.parametrize(("text", "cited"), [
    ("Yes [ID:2], and [ID:0] and [ID:2].", [2, 0]),
    ("(ID: 1) [ID 0] 【ID: 2】 [id:3] ( ID:4 )", [1, 0, 2, 3, 4]),
    ("see ref 1, ref2 and Ref 0.", [1, 2, 0]),
    ("[ID:9] [ID:5] [ID:-1] [ID:x] [ID:1.5] [ID:] ID:1 [1] [1](ref:2)", []),
    ("href1 xref 2 ref 1.5 ref 3rd reference 4 ref\n1 [ID:\n1]", []),
    ("`[ID:1]`, `` a ` [ID:2] ``, ` [ID:3]\n` [ID:0]", [3, 0]),
    ("As\n```\n[ID:1] ref 2\n```\n[ID:0]\n~~~\n[ID:3]", [0]),
    ("[`x`ID:1] [ID:`2`] re`x`f 3", []),
    (f"[ID:{'9' * 5000}] ref {'1' * 5000} [ID:٣]", [3]),
    ("", []),
])
def test_reads_every_form_of_a_passages_number(text: str, cited: list[int]) -> None:
    assert parse_ids(text, 5) == cited


@pytest.mark.parametrize(("text", "cited"), [
    ("Answer.\n[1][3][9][1]", [1, 3]),
    ("Answer.\n\n  [2] [1]  \n\n", [2, 1]),
    ("[1]", [1]),
    ("Answer [1].", []),
    ("Answer.\n[0][4]", []),
    ("[1]\nAnswer.", []),
    ("[1](ref:1)", []),
    ("Answer.\n[1], [2]", []),
    ("\n \n", []),
])
def test_reads_a_last_line_of_numbers_and_no_other(text: str, cited: list[int]) -> None:
    assert parse_last_line(text, 3) == cited


@pytest.mark.parametrize("text", ["`" * 200_000, "```\n" * 60_000, "".join("`" * n + "a" for n in range(1, 800))])
def test_marks_of_code_that_nothing_closes_take_no_time(text: str) -> None:
    began = time.process_time()
    assert parse_ids(text, 5) == []
    assert time.process_time() - began < 5  # 0.1 s; where each is tried again and again, a minute


@given(st.text(alphabet="[]()ID: 【】`ref0123456789\n"), st.integers(0, 9))
def test_cites_nothing_out_of_range_and_nothing_twice(text: str, count: int) -> None:
    for cited, valid in ((parse_ids(text, count), range(count)), (parse_last_line(text, count), range(1, count + 1))):
        assert len(set(cited)) == len(cited)
        assert set(cited) <= set(valid)


def passage(name: str, index: int, **metadata: object) -> Document:
    return Document(f"{name}#{index}", "", metadata, index)


def test_groups_the_passages_of_a_page_in_the_pages_order() -> None:
    found = [passage("p1", 2, url="u1"), passage("x", 0), passage("p2", 0, url="u2"), passage("p1", 0, url="u1")]
    groups = [[document.id for document in group] for group in group_sources(found)]
    assert groups == [["p1#0", "p1#2"], ["x#0"], ["p2#0"]]


def test_takes_each_page_of_a_pdf_and_each_passage_without_url_for_itself() -> None:
    found = [passage("a", 0, url="u", page=1), passage("a", 1, url="u", page=2), passage("b", 0), passage("b", 1)]
    assert [len(group) for group in group_sources(found)] == [1, 1, 1, 1]
    assert found[1].page_url() == "u#page=2"


def test_narrows_the_documents_to_the_cited_ones() -> None:
    aggs = [{"doc_id": "a", "doc_name": "a.md", "count": 2}, {"doc_id": "b", "doc_name": "b.md", "count": 1}]
    chunks = [{"document_id": "a"}, {"document_id": "b"}, {"document_id": "a"}]
    assert narrow(aggs, chunks, [1]) == aggs[1:]
    assert narrow(aggs, chunks, [2, 0]) == aggs[:1]
    assert narrow(aggs, chunks, []) == aggs
