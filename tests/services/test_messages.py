"""A document's entries as others read them: a history, a prompt, RAGFlow's wire."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.messages import adopt, for_model, ragflow_view, text_of, to_llm_history

Entry = dict[str, Any]


def user(text: Any, **more: Any) -> Entry:
    return {"role": "user", "content": text} | more


def bot(text: Any, **more: Any) -> Entry:
    return {"role": "assistant", "content": text} | more


def failed(text: Any) -> Entry:
    return bot(text, finish_reason="error", error_code="MODEL_ERROR", error_message="No.")


def calls(*ids: str, **more: Any) -> Entry:
    return bot("", tool_calls=[{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ids]) | more


def result(id: str, text: str = "out") -> Entry:
    return {"role": "tool", "content": text, "tool_call_id": id}


def said(messages: list[Entry]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in messages]


# -- to_llm_history: fastrag's rule (stores.md A3, D11) -------------------------------------------


@pytest.mark.parametrize(("entries", "expected"), [
    ([], []),
    ([user("u1"), bot(None, finish_reason="error"), user("u2"), bot("ok")],
     [("user", "u1"), ("user", "u2"), ("assistant", "ok")]),
    ([user("u1"), failed("part"), user("u2"), bot("ok")],
     [("user", "u1"), ("assistant", "part"), ("user", "u2"), ("assistant", "ok")]),
    ([{"role": "system", "content": "s"}, user("u1"), bot("")],
     [("system", "s"), ("user", "u1"), ("assistant", "")]),
    ([user("u1"), bot("ab", finish_reason="interrupted")], [("user", "u1"), ("assistant", "ab")]),
])
def test_a_history_drops_what_has_no_content_and_keeps_all_else(
    entries: list[Entry], expected: list[tuple[str, str]]
) -> None:
    assert said(to_llm_history(entries)) == expected


def test_a_history_has_role_and_content_only() -> None:
    assert to_llm_history([user("u1", id="t", seq=1, files=[{}])]) == [{"role": "user", "content": "u1"}]


def test_a_history_merges_nothing() -> None:
    assert said(to_llm_history([user("a"), user("b")])) == [("user", "a"), ("user", "b")]


# -- for_model: the prompt (report C8) ------------------------------------------------------------


@pytest.mark.parametrize(("entries", "expected"), [
    ([user("q")], [("user", "q")]),
    ([bot("Hi!"), user("q")], [("user", "q")]),
    ([{"role": "system", "content": "s"}, bot("Hi!"), bot("More."), user("q")], [("user", "q")]),
    ([user("u1"), bot("a1"), user("q")], [("user", "u1"), ("assistant", "a1"), ("user", "q")]),
    ([user("u1"), bot("a1"), {"role": "system", "content": "s"}, user("q")],
     [("user", "u1"), ("assistant", "a1"), ("user", "q")]),
    ([user("u1"), failed("part"), user("q")], [("user", "q")]),
    ([user("u1"), failed(""), user("q")], [("user", "q")]),
    ([user("u1"), user("u2"), bot("a2"), user("q")], [("user", "u2"), ("assistant", "a2"), ("user", "q")]),
    ([user("u1"), bot(""), user("q")], [("user", "q")]),
    ([user("u1"), bot("ab", finish_reason="interrupted"), user("q")],
     [("user", "u1"), ("assistant", "ab"), ("user", "q")]),
    ([user("u1"), bot("<think>why</think>a1"), user("q")], [("user", "u1"), ("assistant", "a1"), ("user", "q")]),
    ([user("u1"), bot("<think>never closed"), user("q")], [("user", "q")]),
    ([user("u1"), bot("<think>a</think>\n<think>c</think>d <think>"), user("q")],
     [("user", "u1"), ("assistant", "d <think>"), ("user", "q")]),
    ([user("u1"), bot("a1"), user("<think>mine</think>")],
     [("user", "u1"), ("assistant", "a1"), ("user", "<think>mine</think>")]),
    ([user("u1"), bot("a1", hidden=True), bot("a2"), user("q")],
     [("user", "u1"), ("assistant", "a2"), ("user", "q")]),
    ([user([{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}])],
     [("user", "one\ntwo")]),
])
def test_a_prompt_begins_and_ends_with_the_user_and_alternates(
    entries: list[Entry], expected: list[tuple[str, str]]
) -> None:
    assert said(for_model(entries)) == expected


def test_a_failed_turns_words_never_reach_a_model() -> None:
    prompt = for_model([user("u1"), failed("**ERROR** part"), user("q")])
    assert "ERROR" not in str(prompt) and "No." not in str(prompt)


def test_two_answers_in_one_turn_do_not_repeat_the_role() -> None:
    roles = [role for role, _ in said(for_model([user("u1"), bot("a1"), bot("a2"), user("q")]))]
    assert roles == ["user", "assistant", "user"]


def test_an_entry_that_stands_twice_reaches_the_model_once() -> None:
    """Peers DU-06."""
    prompt = for_model([user("u1", uid="x"), bot("a1", uid="y"), user("u1", uid="x"), bot("a1", uid="y"), user("q")])
    assert said(prompt) == [("user", "u1"), ("assistant", "a1"), ("user", "q")]


def test_a_prompt_is_made_without_touching_what_is_stored() -> None:
    entries = [bot("Hi!"), user("u1"), calls("x"), failed("p"), user("a"), user("b")]
    before = copy.deepcopy(entries)
    for_model(entries)
    to_llm_history(entries)
    assert entries == before


# -- tool calls (peers CA-03, stores D27) ---------------------------------------------------------


def test_an_answered_tool_call_stays_as_it_is() -> None:
    prompt = for_model([user("u1"), calls("x"), result("x"), bot("a1"), user("q")])
    assert [message["role"] for message in prompt] == ["user", "assistant", "tool", "assistant", "user"]
    assert (prompt[1]["tool_calls"][0]["id"], prompt[2]["tool_call_id"], prompt[2]["content"]) == ("x", "x", "out")


def test_a_dangling_tool_call_is_answered_as_interrupted() -> None:
    prompt = for_model([user("u1"), calls("x", "y"), result("x"), bot("a1"), user("q")])
    answers = {message["tool_call_id"]: message["content"] for message in prompt if message["role"] == "tool"}
    assert answers.keys() == {"x", "y"} and answers["x"] == "out" and "interrupted" in answers["y"]


def test_a_tool_calls_answers_stand_directly_behind_it() -> None:
    prompt = for_model([user("u1"), calls("x", "y"), result("y"), user("q")])
    assert [message["role"] for message in prompt] == ["user", "assistant", "tool", "tool", "user"]
    prompt = for_model([user("u1"), calls("x"), user("q")])
    assert [message["role"] for message in prompt] == ["user", "assistant", "tool", "user"]


def test_a_dangling_result_is_left_out() -> None:
    assert said(for_model([user("u1"), result("unknown"), bot("a1"), user("q")])) == [
        ("user", "u1"), ("assistant", "a1"), ("user", "q"),
    ]


def test_a_call_in_a_failed_turn_goes_with_the_turn_and_its_result_too() -> None:
    assert said(for_model([user("u1"), calls("x"), result("x"), failed("p"), user("q")])) == [("user", "q")]


speech = st.one_of(
    st.sampled_from(["", "u"]).map(user), st.sampled_from(["", "a", "<think>t"]).map(bot), st.just(failed("p")),
    st.just({"role": "system", "content": "s"}),
)


@settings(max_examples=300)
@given(st.lists(speech, max_size=8))
def test_any_conversation_makes_a_prompt_that_strict_models_take(history: list[Entry]) -> None:
    """Report C8."""
    roles = [message["role"] for message in for_model([*history, user("q")])]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


@settings(max_examples=300)
@given(st.lists(st.one_of(speech, st.sampled_from("xy").map(calls), st.sampled_from("xy").map(result)), max_size=8))
def test_every_tool_call_of_a_prompt_is_answered_directly_behind_it_and_only_there(history: list[Entry]) -> None:
    """Report CA-03."""
    prompt = for_model([*history, user("q")])
    answers = 0
    for n, message in enumerate(prompt):
        wanted = [call["id"] for call in message.get("tool_calls", ())]
        answers += len(wanted)
        behind = prompt[n + 1 : n + 1 + len(wanted)]
        assert [(one["role"], one.get("tool_call_id")) for one in behind] == [("tool", id) for id in wanted]
    assert [message["role"] for message in prompt].count("tool") == answers
    assert prompt[0]["role"] == prompt[-1]["role"] == "user"


# -- the rest -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "text"), [
    ("a", "a"), (None, ""), ([], ""), (["a", "b"], "a\nb"), ([{"type": "text", "text": "a"}, {"type": "file"}], "a"),
    ({"a": 1}, "{'a': 1}"), (7, "7"),
])
def test_any_content_has_a_text(content: Any, text: str) -> None:
    assert text_of(content) == text


def test_ragflows_wire_shows_users_and_assistants_and_nothing_hidden() -> None:
    hidden, tool = bot("secret", hidden=True), result("x")
    shown, slots = ragflow_view(
        [{"role": "system", "content": "s"}, user("u", id="t"), tool, hidden, bot(["a", "b"], id="t")],
        [{"message_id": "t"}],
    )
    assert said(shown) == [("user", "u"), ("assistant", "a\nb")] and slots == [{"message_id": "t"}]
    assert [entry["id"] for entry in shown] == ["t", "t"]


@pytest.mark.parametrize(("column", "array"), [
    (None, []), ("", []), ("{}", []), ({}, []), ([], []), ("[]", []), ('[{"a": 1}]', [{"a": 1}]),
    ({"chunks": {"c": {}}}, [{"chunks": {"c": {}}}]), ('{"chunks": []}', [{"chunks": []}]), (b"[1]", [1]),
])
def test_an_import_makes_arrays_of_whatever_a_column_held(column: Any, array: list[Any]) -> None:
    """Report L5: nothing non-empty becomes nothing."""
    assert adopt(column, column) == (array, array)
