"""Thinking told from answering, wherever a text with markers is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.events import End, ReasoningDelta, Sources, TextDelta
from services.think_tags import ThinkTags


def split(*pieces: str) -> tuple[str, str]:
    """What was thought and what was said."""
    tags = ThinkTags()
    said = [*(each for piece in pieces for each in tags.read(piece)), *tags.end()]
    return tuple(  # type: ignore[return-value]
        "".join(each.text for each in said if isinstance(each, kind)) for kind in (ReasoningDelta, TextDelta)
    )


@pytest.mark.parametrize(("text", "thought", "answer"), [
    ("plain", "", "plain"),
    ("<think>why</think>yes", "why", "yes"),
    ("<think>a</think>b<think>c</think>d", "a", "b<think>c</think>d"),
    (" \n<think>a</think>\n<think>c</think>\nd", "ac", "d"),
    ("The parser reads a <think> tag, then more.", "", "The parser reads a <think> tag, then more."),
    ("```\n<think>\nin code\n</think>\n```\nend", "", "```\n<think>\nin code\n</think>\n```\nend"),
    (" \n plain", "", " \n plain"),
    ("<think>never closed", "never closed", ""),
    ("1 < 2, <thin ice", "", "1 < 2, <thin ice"),
    ("ends with <thi", "", "ends with <thi"),
    ("<think>ends with </thi", "ends with </thi", ""),
    ("<think>\nwhy\n</think>\n\n yes", "\nwhy\n", "yes"),
    ("Text between `<think>` and `</think>` is thought", "", "Text between `<think>` and `</think>` is thought"),
    ("<think>why `<think>`?</think>yes", "why `<think>`?", "yes"),
    ("<<think>>a</</think>b", "", "<<think>>a</</think>b"),
])
def test_a_text_is_split_alike_in_one_piece_and_letter_by_letter(text: str, thought: str, answer: str) -> None:
    assert split(text) == (thought, answer)
    assert split(*text) == (thought, answer)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "thi", "nk>", "/", "a", "`"]), max_size=12), st.data())
def test_where_a_text_is_cut_changes_nothing(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[begin:end] for begin, end in pairwise(cuts)]
    assert split(*pieces) == split(text)


def test_what_is_said_before_another_event_is_no_part_of_a_tag() -> None:
    tags = ThinkTags()
    said = [each for event in (TextDelta("<"), Sources([]), TextDelta("think>a")) for each in tags.split(event)]
    assert said == [TextDelta("<"), Sources([]), TextDelta("think>a")]


def test_what_waits_is_said_before_the_next_event() -> None:
    tags = ThinkTags()
    assert [*tags.split(TextDelta(" <"))] == []
    assert [*tags.split(Sources([]))] == [TextDelta(" <"), Sources([])]
    assert [*tags.split(End())] == [End()]
