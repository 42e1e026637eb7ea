"""Prompts: each place filled once, from where it should be, and everything else left as it is."""

from datetime import date
from typing import Any

import pytest

from services.errors import InvalidArgument
from services.rag.prompts import PromptTemplate, render_system
from services.rag.retrievers import Document

PASSAGES = [
    Document("a", "Red {tone}.", {"document_name": "colours.md", "heading": "Warm"}), Document("b", "Blue."),
]


def rendered(system: Any, *parameters: dict[str, Any], quote: bool = False, **options: Any) -> str:
    return render_system({"system": system, "parameters": list(parameters)}, PASSAGES, options, quote)


def test_numbers_the_passages_from_zero_with_their_titles() -> None:
    assert rendered("Know: {knowledge}!") == (
        "Know: ID: 0\nTitle: colours.md > Warm\nRed {tone}.\n\nID: 1\nBlue.!"
    )


def test_fills_declared_parameters_and_today() -> None:
    text = rendered("{date} {tone} {knowledge} {else}", {"key": "date"}, {"key": "tone"}, tone=7, date="never")
    assert text.startswith(f"{date.today().isoformat()} 7 ID: 0")
    assert text.endswith("{else}")
    assert "Red {tone}." in text


def test_a_missing_optional_parameter_is_blank() -> None:
    assert rendered("[{tone}]{knowledge}", {"key": "tone", "optional": True}).startswith("[]ID: 0")


def test_a_missing_required_parameter_is_named() -> None:
    with pytest.raises(InvalidArgument, match="`tone`"):
        rendered("{tone}", {"key": "tone", "optional": False}, {"key": "knowledge", "optional": False})


def test_leaves_undeclared_places_and_braces_untouched() -> None:
    assert rendered('{"a": {b}} {tone} {date} {} {knowledge}', tone="x").startswith('{"a": {b}} {tone} {date} {} ID: 0')


def test_passages_stand_at_the_end_of_a_prompt_without_a_place_for_them() -> None:
    assert rendered("Be kind.").startswith("Be kind.\n\nID: 0\n")


def test_asks_for_citations_only_where_there_is_something_to_cite() -> None:
    assert "[ID:0]" in rendered("{knowledge}", quote=True)
    assert "[ID:" not in rendered("{knowledge}")
    assert render_system({"system": "{knowledge}"}, [], {}, True) == ""


def test_knowledge_of_the_request_serves_a_chat_without_passages() -> None:
    assert render_system({"system": "Know {knowledge}"}, [], {"knowledge": "this"}, True) == "Know this"


@pytest.mark.parametrize(("system", "text"), [(42, "42"), (True, "true"), (None, ""), ("", "")])
def test_a_system_prompt_may_be_no_text(system: Any, text: str) -> None:
    assert render_system({"system": system}, [], {}, True) == text


def test_the_default_template_has_its_blocks_in_order() -> None:
    text = PromptTemplate().render("[1]\nabout {question}", "Why {context}?")
    assert text == "Documents:\n[1]\nabout {question}\n\nQuestion:\nWhy {context}?\n\nAnswer:"
    assert "[1][3]" in PromptTemplate().system
