"""RAGFlow's state table without its faults: what each event does to the turn, and what a reader sees of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.events import (
    Citations,
    Custom,
    End,
    ErrorCode,
    Event,
    FinishReason,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Sources,
    State,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    Usage,
)
from services.structure_answer import (
    Frame,
    Turn,
    answer_entry,
    answer_slot,
    given_answer,
    given_slot,
    replay,
    structure_answer,
)
from tests.fakes import chunk

AGGS = [{"doc_id": "d", "doc_name": "d.md", "count": 1}]


def fold(*events: Event) -> tuple[Turn, list[Frame | None]]:
    turn = Turn()
    return turn, [structure_answer(turn, event, "t1", "s1") for event in events]


def shown(*events: Event) -> list[Frame]:
    return [frame for frame in fold(*events)[1] if frame is not None]


def test_a_delta_is_forwarded_as_it_came_and_adds_to_the_text() -> None:
    turn, frames = fold(TextDelta("Hel"), TextDelta("lo"))
    assert [frame and frame.answer for frame in frames] == ["Hel", "lo"]
    assert turn.text == "Hello"
    assert all(frame and frame.reference is None and not frame.final for frame in frames)


def test_every_frame_names_its_turn_and_its_session() -> None:
    events = (ReasoningStart(), ReasoningDelta("r"), ReasoningEnd(), TextDelta("a"), End())
    assert {(frame.id, frame.session_id) for frame in shown(*events)} == {("t1", "s1")}
    assert structure_answer(Turn(), TextDelta("a"), "t1", None) == Frame("t1", None, answer="a")


def test_reasoning_is_flagged_in_frames_and_tagged_in_the_text() -> None:
    turn, frames = fold(ReasoningStart(), ReasoningDelta("why"), ReasoningEnd(), TextDelta("Hi"))
    assert turn.text == "<think>why</think>Hi"
    assert [(f.answer, f.start_to_think, f.end_to_think) for f in frames if f] == [
        ("", True, False), ("why", False, False), ("", False, True), ("Hi", False, False),
    ]


def test_a_turn_knows_whether_it_is_thinking() -> None:
    turn, _ = fold(ReasoningStart(), ReasoningDelta("why"))
    assert turn.thinking
    structure_answer(turn, ReasoningEnd(), "t1", "s1")
    assert not turn.thinking


def test_sources_show_in_the_last_frame_only() -> None:
    first, delta, last = fold(Sources([chunk("a")], AGGS), TextDelta("x"), End())[1]
    assert first is None and delta and delta.reference is None
    assert last and last.reference == {"total": 1, "chunks": [chunk("a")], "doc_aggs": AGGS}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_sources_before_or_after_the_text_make_the_same_ending(order: tuple[int, int]) -> None:
    events: list[Event] = [Sources([chunk("a")], AGGS), TextDelta("x")]
    turn, frames = fold(*(events[index] for index in order), End())
    assert frames[-1] and frames[-1].reference == turn.reference
    assert (turn.text, turn.chunks) == ("x", [chunk("a")])


def test_citations_narrow_the_documents_and_keep_every_passage() -> None:
    both = [*AGGS, {"doc_id": "e", "doc_name": "e.md", "count": 1}]
    turn, frames = fold(Sources([chunk("a"), chunk("b")], both), TextDelta("[ID:0]"), Citations([0], AGGS), End())
    assert frames[-1] and frames[-1].reference == {"total": 2, "chunks": [chunk("a"), chunk("b")], "doc_aggs": AGGS}
    assert answer_slot(turn, "t1") == {
        "message_id": "t1", "chunks": [chunk("a"), chunk("b")], "doc_aggs": AGGS, "citations": [0],
    }


def test_without_sources_the_last_frame_has_an_empty_reference_and_the_turn_a_slot() -> None:
    turn, frames = fold(TextDelta("x"), End())
    assert frames[-1] and frames[-1].reference == {"total": 0, "chunks": [], "doc_aggs": []}
    assert answer_slot(turn, "t1") == {"message_id": "t1", "chunks": [], "doc_aggs": []}


def test_the_last_frame_has_no_text_and_never_overwrites_any() -> None:
    turn, frames = fold(TextDelta("x"), End(usage=Usage(3, 1)))
    last = frames[-1]
    assert last and (last.answer, last.final, last.finish_reason) == ("", True, FinishReason.STOP)
    assert (turn.text, last.text, last.usage) == ("x", "x", Usage(3, 1))


def test_an_end_that_comes_first_makes_an_empty_answer() -> None:
    turn, [last] = fold(End())
    assert last and last.final and last.answer == ""
    assert answer_entry(turn, "t1", "r1", End())["content"] == ""


def test_an_empty_delta_changes_nothing() -> None:
    assert fold(TextDelta("x"), TextDelta(""))[0].text == "x"


@pytest.mark.parametrize("event", [
    ToolCallStart("c", "n"), ToolCallArguments("c", "{}"), ToolCallEnd("c"), ToolResult("c", "r"),
    State({"a": 1}), Custom("x", 1),
])
def test_what_ragflow_has_no_word_for_is_not_shown_and_changes_no_text(event: Event) -> None:
    turn, frames = fold(TextDelta("x"), event)
    assert (frames[-1], turn.text) == (None, "x")


def test_an_answers_entry_is_what_was_said_and_how_it_ended() -> None:
    turn, _ = fold(TextDelta("x"))
    entry = answer_entry(turn, "t1", "r1", End(usage=Usage(3, 7)))
    assert entry == {
        "role": "assistant", "content": "x", "id": "t1", "created_at": turn.created_at, "finish_reason": "stop",
        "run_id": "r1", "token_count": 7,
    }
    assert isinstance(entry["created_at"], float)


def test_a_failures_entry_has_the_partial_text_the_code_and_our_sentence_only() -> None:
    turn, _ = fold(TextDelta("par"))
    end = End(FinishReason.ERROR, error_code=ErrorCode.TIMEOUT, error_message="Too slow.", detail="secret")
    entry = answer_entry(turn, "t1", "r1", end)
    assert (entry["content"], entry["finish_reason"]) == ("par", "error")
    assert (entry["error_code"], entry["error_message"]) == ("TIMEOUT", "Too slow.")
    assert "secret" not in str(entry)
    last = structure_answer(turn, end, "t1", "s1")
    assert last and (last.error_code, last.error_message) == ("TIMEOUT", "Too slow.") and "secret" not in str(last)


@pytest.mark.parametrize("finish", [FinishReason.STOP, FinishReason.LENGTH, FinishReason.INTERRUPTED])
def test_an_ending_that_is_no_failure_has_no_error_keys(finish: FinishReason) -> None:
    entry = answer_entry(fold(TextDelta("x"))[0], "t1", "r1", End(finish))
    assert entry["finish_reason"] == finish and not {"error_code", "error_message"} & entry.keys()


texts = st.text(max_size=5)
event_lists = st.lists(st.one_of(
    texts.map(TextDelta), texts.map(ReasoningDelta),
    st.lists(st.sampled_from("abc"), max_size=3).map(lambda names: Sources([chunk(name) for name in names], AGGS)),
), max_size=12)


@given(event_lists)
def test_the_joined_frames_are_the_stored_text(events: list[Event]) -> None:
    turn, frames = fold(*events, End())
    assert "".join(frame.answer for frame in frames if frame) == turn.text
    assert [frame.final for frame in frames if frame].count(True) == 1


@given(event_lists, st.sampled_from([
    End(), End(FinishReason.INTERRUPTED), End(FinishReason.LENGTH, Usage(0, 4)),
    End(FinishReason.ERROR, error_code=ErrorCode.MODEL_ERROR, error_message="No."),
]))
def test_a_replay_ends_as_the_first_time(events: list[Event], end: End) -> None:
    turn, frames = fold(*events, end)
    again, replayed = fold(*replay(answer_entry(turn, "t1", "r1", end), answer_slot(turn, "t1")))
    first, second = frames[-1], replayed[-1]
    assert first and second and (again.text, again.reference) == (turn.text, turn.reference)
    assert replace(second, created_at=first.created_at) == first
    assert answer_slot(again, "t1") == answer_slot(turn, "t1")


def test_a_replay_without_a_slot_has_no_sources() -> None:
    _, frames = fold(*replay({"role": "assistant", "content": "old"}, None))
    assert frames[-1] and frames[-1].reference == {"total": 0, "chunks": [], "doc_aggs": []}
    assert (frames[-1].finish_reason, frames[-1].text) == (FinishReason.STOP, "old")


def test_a_brought_answer_gets_its_questions_id_and_an_empty_slot() -> None:
    brought: dict[str, Any] = {"role": "assistant", "content": "a", "id": "own", "uid": "own", "color": "red"}
    entry = given_answer(brought, "t1")
    assert (entry["id"], entry["uid"], entry["color"]) == ("t1", "own", "red") and entry["created_at"] > 0
    assert "id" not in given_answer(brought, None)
    assert given_slot("t1") == {"message_id": "t1", "chunks": [], "doc_aggs": []}


def test_two_turns_share_nothing() -> None:
    one, two = Turn(), Turn()
    structure_answer(one, Sources([chunk("a")], AGGS), "t1", "s1")
    structure_answer(one, TextDelta("x"), "t1", "s1")
    assert (two.text, two.chunks, two.doc_aggs) == ("", [], [])
