"""Questions over RAGFlow's completion paths: checks, frames, plain replies, errors, histories, limits."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from flask import Flask

from api.app import close_app
from services.events import End, ErrorCode, FinishReason, ReasoningDelta, TextDelta
from services.models import model_id
from tests.conftest import Person
from tests.contracts.wire import (
    ask,
    at_once,
    body,
    cited,
    final_of,
    frames,
    later,
    path,
    read,
    runs,
    spoken,
    stream,
    text_of,
    twin,
    until,
)
from tests.fakes import Gate, ScriptedModel, ScriptedModels, chunk, fails, says

pytestmark = pytest.mark.usefixtures("settled")

USER = {"role": "user", "content": "hello"}
PASS_ALL = "`pass_all_history_messages` must be true when `store_history_messages` is false."
NO_CHAT_ID = "`chat_id` is required when `session_id` is provided."


@pytest.fixture(params=[True, False], ids=["stream", "plain"])
def streams(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def busy(alice: Person, chat: Any, session: Any, gate: Gate) -> Any:
    """A session that is answering "slow?"; the response of that call."""
    response = alice("POST", path(chat), body("slow?", session))
    assert gate.reached.wait(10)
    return response


def sessions(person: Person, chat: Any) -> list[Any]:
    found: list[Any] = person.ok("GET", f"/chats/{chat['id']}/sessions?page_size=100")
    return found


def refused(person: Person, where: str, request: Any, **more: Any) -> tuple[int, str]:
    """Code and text of a refusal; its data is what every version of the SDK can read."""
    response = person("POST", where, request, **more)
    answer = response.get_json()
    assert response.mimetype == "application/json" and answer["code"] != 0, answer
    told = answer["data"]
    assert (told["answer"], told["reference"]) == (f"**ERROR**: {answer['message']}", [])
    assert response.status_code == (answer["code"] if answer["code"] in (409, 413, 429, 503) else 200)
    return answer["code"], answer["message"]


# -- checks, in their order ---------------------------------------------------------------------


@pytest.mark.parametrize(("messages", "text"), [
    (None, "required argument are missing: messages"),
    ([], "`messages` must be a non-empty list."),
    ("hello", "`messages` must be a non-empty list."),
    ({"role": "user", "content": "hello"}, "`messages` must be a non-empty list."),
    (["hello"], "Every item in `messages` must be an object."),
    ([USER, None], "Every item in `messages` must be an object."),
    ([{"role": "user"}], "Every item in `messages` must include `role` and `content`."),
    ([{"content": "hello"}], "Every item in `messages` must include `role` and `content`."),
    ([{"role": "system", "content": "s"}], "`messages` must contain a user message."),
    ([{"role": "assistant", "content": "a"}], "`messages` must contain a user message."),
    ([USER, {"role": "assistant", "content": "a"}], "The last message must be from user."),
])
def test_refuses_messages_that_ask_nothing(
    alice: Person, chat: Any, messages: Any, text: str
) -> None:
    request = {"messages": messages} if messages is not None else {}
    for streams in (True, False):
        request["stream"] = streams
        assert refused(alice, path(chat), request) == (101, text)
        assert refused(alice, "/chat/completions", request | {"chat_id": chat["id"]}) == (101, text)
    assert sessions(alice, chat) == []


def test_checks_in_ragflows_order(alice: Person, chat: Any, session: Any, streams: bool) -> None:
    request: dict[str, Any] = {
        "store_history_messages": False, "session_id": "unknown", "llm_id": "zz", "stream": streams,
    }
    where = "/chat/completions"
    for mended, refusal in (
        ({}, (101, "required argument are missing: messages")),
        ({"messages": [USER]}, (102, PASS_ALL)),
        ({"store_history_messages": True}, (102, NO_CHAT_ID)),
        ({"chat_id": "unknown"}, (109, "no authorization")),
        ({"chat_id": chat["id"]}, (102, "Session not found!")),
        ({"session_id": session["id"]}, (102, "Cannot use specified model zz.")),
    ):
        request |= mended
        assert refused(alice, where, request) == refusal
        told = alice("POST", where, request).get_json()["data"]
        assert told["session_id"] == request["session_id"] and "id" in told
    assert alice("POST", where, request | {"llm_id": ""}).get_data().count(b"You said") == 1


def test_a_session_of_another_of_the_callers_chats_is_refused(alice: Person, session: Any, streams: bool) -> None:
    other = alice.ok("POST", "/chats", {"name": "other"})
    request = body("hello", session) | {"stream": streams}
    assert refused(alice, path(other), request) == (102, "Session does not belong to this chat!")
    assert spoken(alice, session) == [("assistant", "Welcome.")]


def test_a_strangers_chat_and_session_look_like_unknown_ones(
    alice: Person, charlie: Person, chat: Any, session: Any, streams: bool
) -> None:
    own = charlie.ok("POST", "/chats", {"name": "own"})
    request = body("hello", session) | {"stream": streams}
    assert refused(charlie, path(chat), request) == refused(charlie, path({"id": "0" * 32}), request)
    assert refused(charlie, path(chat), request) == (109, "no authorization")
    assert refused(charlie, path(own), request) == (102, "Session not found!")
    assert spoken(alice, session) == [("assistant", "Welcome.")]


def test_a_deleted_chat_answers_no_questions(alice: Person, chat: Any, session: Any) -> None:
    alice.ok("DELETE", f"/chats/{chat['id']}")
    assert refused(alice, path(chat), body("hello", session)) == (109, "no authorization")


def test_no_token_is_401_with_its_literal(nobody: Person, chat: Any, streams: bool) -> None:
    response = nobody("POST", path(chat), body("hello") | {"stream": streams})
    assert response.status_code == 401
    assert response.get_json() == {"code": 401, "message": "<Unauthorized '401: Unauthorized'>", "data": None}


@pytest.mark.parametrize(("raw", "code", "text"), [
    (b"{not json", 101, "Malformed JSON syntax: Missing commas/brackets or invalid encoding"),
    (b"null", 101, "null"),
    (b"[]", 101, "array"),
    (b'"text"', 100, "AttributeError(\"'str' object has no attribute 'get'\")"),
    (b"", 101, "required argument are missing: messages"),
])
def test_a_body_that_is_no_object_is_refused_with_data_that_clients_can_read(
    alice: Person, chat: Any, raw: bytes, code: int, text: str
) -> None:
    sent = {"data": raw, "content_type": "application/json"}
    told, message = refused(alice, path(chat), None, **sent)
    assert told == code and text in message
    assert alice("POST", path(chat), **sent).get_json()["data"].keys() == {"answer", "reference", "session_id", "id"}


@pytest.mark.parametrize("stated", [True, False, 1, 0, "true", "false", "True", None])
def test_stream_is_read_as_a_switch(alice: Person, chat: Any, stated: Any) -> None:
    response = alice("POST", path(chat), body("hello") | {"stream": stated})
    streamed = stated in (True, "true", "True", None)
    assert (b"data:" in response.data, response.mimetype == "text/event-stream") == (streamed, streamed)


def test_streams_where_nothing_is_said_of_it(alice: Person, chat: Any) -> None:
    response = alice("POST", path(chat), body("hello"))
    assert response.mimetype == "text/event-stream" and response.get_data()


LINE_ENDS = "a\rb\nc\r\nd\x0be\x0cf\x1cg\x1dh\x1ei\x85j\u2028k\u2029l"


@pytest.mark.parametrize("where", ["/chats/{}/completions", "/openai/{}/chat/completions"], ids=["ragflow", "openai"])
def test_an_event_is_one_line_for_a_client_that_ends_lines_as_unicode_does(
    alice: Person, chat: Any, model: ScriptedModel, where: str
) -> None:
    model.script("lines?", lambda: says(LINE_ENDS))
    asked = {"model": "model", "stream": True} | body("lines?")
    lines = alice("POST", where.format(chat["id"]), asked).get_data(as_text=True).splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:{")]
    said = [event["choices"][0]["delta"]["content"] if "choices" in event else event["data"] for event in events]
    texts = [each["answer"] if isinstance(each, dict) else each for each in said if each not in (True, None)]
    assert "".join(texts) == LINE_ENDS


@pytest.mark.parametrize("stated", ["yes", "", 2, -1, 0.5, [], {}])
def test_any_other_word_for_stream_is_an_argument_error(alice: Person, chat: Any, stated: Any) -> None:
    code, text = refused(alice, path(chat), body("hello") | {"stream": stated})
    assert code == 101 and "stream" in text
    assert sessions(alice, chat) == []


@pytest.mark.parametrize("word", [True, 1, "1", "true", "yes", "on"])
def test_the_history_switches_know_ragflows_words(alice: Person, chat: Any, word: Any) -> None:
    history = [{"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"}, USER]
    data = alice.ok("POST", path(chat), {"messages": history, "pass_all_history_messages": word, "stream": False})
    made = {"chat_id": chat["id"], "id": data["session_id"]}
    assert spoken(alice, made)[1:3] == [("user", "u1"), ("assistant", "a1")]


def test_of_two_names_for_a_switch_the_first_counts(alice: Person, chat: Any) -> None:
    request = body("hello") | {"store_history_messages": False, "pass_all_history": True}
    assert refused(alice, path(chat), request | {"pass_all_history_messages": False}) == (102, PASS_ALL)
    assert alice("POST", path(chat), request | {"stream": False}).get_json()["code"] == 0


# -- who answers, and where it is kept ----------------------------------------------------------


def test_both_paths_and_both_names_of_a_session_ask_the_same(alice: Person, chat: Any, session: Any) -> None:
    for where, named in (
        (path(chat), {"session_id": session["id"]}),
        (path(chat), {"conversation_id": session["id"]}),
        ("/chat/completions", {"chat_id": chat["id"], "session_id": session["id"]}),
    ):
        data = alice.ok("POST", where, {"question": "hello", "stream": False} | named)
        assert (data["answer"], data["session_id"]) == ("You said: hello", session["id"])
    assert len(spoken(alice, session)) == 7


def test_a_chat_id_in_the_body_wins_over_the_path(alice: Person, chat: Any) -> None:
    other = alice.ok("POST", "/chats", {"name": "other"})
    data = alice.ok("POST", path(other), body("hello") | {"chat_id": chat["id"], "stream": False})
    assert data["chat_id"] == chat["id"]
    assert (len(sessions(alice, chat)), len(sessions(alice, other))) == (1, 0)


@pytest.mark.parametrize("named", [{}, {"session_id": ""}, {"session_id": None}], ids=["absent", "empty", "null"])
def test_without_a_session_the_question_is_answered_in_a_new_one(
    alice: Person, chat: Any, streams: bool, named: dict[str, Any]
) -> None:
    data = final_of(stream(alice, chat, "2+2?", **named)) if streams else ask(alice, chat, "2+2?", **named)
    [made] = sessions(alice, chat)
    assert (made["id"], made["name"]) == (data["session_id"], "2+2?")
    assert spoken(alice, made) == [("assistant", "Welcome."), ("user", "2+2?"), ("assistant", "You said: 2+2?")]


def test_a_new_session_takes_the_callers_end_user(alice: Person, chat: Any) -> None:
    ask(alice, chat, "hello", user_id="u1")
    assert [row["user_id"] for row in sessions(alice, chat)] == ["u1"]


def test_without_a_chat_the_default_model_answers_and_nothing_is_stored(
    alice: Person, chat: Any, streams: bool
) -> None:
    request = body("hello") | {"stream": streams}
    response = alice("POST", "/chat/completions", request)
    data = final_of([f["data"] for f in frames(response.get_data(as_text=True))]) if streams \
        else response.get_json()["data"]
    assert data["session_id"] == "" and "chat_id" not in data
    assert streams or data["answer"] == "You said: hello"
    assert sessions(alice, chat) == []


def test_without_a_chat_the_model_sees_the_whole_request(alice: Person, model: ScriptedModel) -> None:
    history = [{"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"}, USER]
    alice.ok("POST", "/chat/completions", {"messages": history, "stream": False})
    assert [text for _, text in seen(model)][-3:] == ["u1", "a1", "hello"]


def test_what_is_not_to_be_stored_is_answered_and_gone(alice: Person, chat: Any, session: Any) -> None:
    not_stored = {"store_history_messages": False, "pass_all_history_messages": True}
    before = read(alice, session)
    data = ask(alice, chat, "hello", **not_stored)
    assert (data["answer"], data["session_id"]) == ("You said: hello", None)
    assert ask(alice, chat, "hello", session, **not_stored)["answer"] == "You said: hello"
    assert [row["id"] for row in sessions(alice, chat)] == [session["id"]]
    assert read(alice, session) == before


def test_a_call_that_stores_nothing_has_a_run_that_can_be_stopped(
    alice: Person, chat: Any, gate: Gate
) -> None:
    not_stored = {"store_history_messages": False, "pass_all_history_messages": True}
    response = alice("POST", path(chat), body("slow?") | not_stored)
    assert gate.reached.wait(10)
    alice.ok("POST", f"/runs/{response.headers['X-Chatkeep-Run']}/cancel")
    streamed = [frame["data"] for frame in frames(response.get_data(as_text=True))]
    assert (text_of(streamed), final_of(streamed)["finish_reason"]) == ("half", "interrupted")
    assert sessions(alice, chat) == []


def test_calls_that_store_nothing_wait_for_nobody(alice: Person, chat: Any, session: Any, busy: Any) -> None:
    data = ask(alice, chat, "hello", session, store_history=False, pass_all_history=True)
    assert data["answer"] == "You said: hello"


@pytest.mark.parametrize("llm_id", ["other-model", model_id("other-model"), "default", "", None])
def test_a_known_model_may_be_named(alice: Person, chat: Any, llm_id: Any) -> None:
    assert ask(alice, chat, "hello", llm_id=llm_id)["answer"] == "You said: hello"


def test_an_unknown_model_is_refused_before_a_session_is_made(alice: Person, chat: Any, streams: bool) -> None:
    request = body("hello") | {"llm_id": "zz", "stream": streams}
    assert refused(alice, path(chat), request) == (102, "Cannot use specified model zz.")
    assert refused(alice, path(chat), request | {"llm_id": 7})[0] == 101
    assert sessions(alice, chat) == []


# -- frames -------------------------------------------------------------------------------------


def test_a_stream_is_deltas_one_last_frame_and_one_terminator(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: says("Hel", "lo", chunks=("a", "b")))
    *deltas, final, end = stream(alice, chat, "hello", session)
    assert [(data["answer"], data["final"], data["reference"]) for data in deltas] == [
        ("Hel", False, {"chunks": []}), ("lo", False, {"chunks": []}),
    ]
    assert (final["answer"], final["final"], final["finish_reason"], end) == ("", True, "stop", True)
    assert final["reference"] == {
        "total": 2, "chunks": [chunk("a"), chunk("b")], "doc_aggs": [
            {"doc_id": f"doc-{name}", "doc_name": f"{name}.md", "count": 1} for name in "ab"
        ],
    }
    assert {"prompt", "created_at", "audio_binary"} <= final.keys()


def test_every_frame_says_whose_it_is(alice: Person, chat: Any, session: Any, model: ScriptedModel) -> None:
    model.script("hello", lambda: says("Hel", "lo"))
    response = alice("POST", path(chat), body("hello", session))
    named = [frame["data"] for frame in frames(response.get_data(as_text=True))][:-1]
    turn_id = read(alice, session)["messages"][-1]["id"]
    assert len(named) == 3
    for data in named:
        assert (data["id"], data["session_id"], data["chat_id"]) == (turn_id, session["id"], chat["id"])
        assert data["run_id"] == response.headers["X-Chatkeep-Run"]


def test_the_bytes_of_a_stream_are_those_that_clients_parse(alice: Person, chat: Any, session: Any) -> None:
    response = alice("POST", path(chat), body("hello", session))
    assert response.status_code == 200
    assert response.headers.getlist("Content-Type") == ["text/event-stream; charset=utf-8"]
    assert (response.headers["Cache-Control"], response.headers["X-Accel-Buffering"]) == ("no-cache", "no")
    text, run_id = response.get_data(as_text=True), response.headers["X-Chatkeep-Run"]
    events = text.removesuffix("\n\n").split("\n\n")
    assert json.loads(events[-1].splitlines()[-1].removeprefix("data:")) == {"code": 0, "message": "", "data": True}
    numbers = []
    for event in events:
        head, data = event.splitlines()
        assert head.startswith(f"id: {run_id}:") and data.startswith('data:{"code":0,"message":"","data":')
        numbers.append(int(head.rpartition(":")[2]))
    assert numbers == sorted(numbers) and numbers[0] == 1


def test_reasoning_travels_between_its_flags_and_is_stored_in_tags(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: iter([ReasoningDelta("wh"), ReasoningDelta("y"), TextDelta("Hi"), End()]))
    *deltas, final, end = stream(alice, chat, "hello", session)
    assert [(data["answer"], data.get("start_to_think"), data.get("end_to_think")) for data in deltas] == [
        ("", True, None), ("wh", None, None), ("y", None, None), ("", None, True), ("Hi", None, None),
    ]
    assert (final["answer"], end) == ("", True)
    assert spoken(alice, session)[-1] == ("assistant", "<think>why</think>Hi")


def test_reasoning_alone_is_closed_before_the_last_frame(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: iter([ReasoningDelta("why")]))
    streamed = stream(alice, chat, "hello", session)
    assert [data.get("end_to_think") for data in streamed[:-1]] == [None, None, True, None]
    assert spoken(alice, session)[-1] == ("assistant", "<think>why</think>")


def test_legacy_frames_are_cumulative_and_the_last_one_has_it_all(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: iter([ReasoningDelta("why"), *says("Hel", "lo", chunks=("a",))]))
    *deltas, final, end = stream(alice, chat, "hello", session, legacy=True)
    texts = [data["answer"] for data in deltas]
    assert texts[-3:] == ["<think>why</think>", "<think>why</think>Hel", "<think>why</think>Hello"]
    assert all(later.startswith(earlier) and later for earlier, later in pairwise(texts))
    assert not any({"start_to_think", "end_to_think"} & data.keys() for data in deltas)
    assert (final["answer"], final["final"], end) == ("<think>why</think>Hello", True, True)
    assert [found["id"] for found in final["reference"]["chunks"]] == ["a"]
    assert spoken(alice, session)[-1] == ("assistant", "<think>why</think>Hello")


def test_a_model_that_says_nothing_still_gives_a_last_frame_and_a_stored_turn(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", says)
    streamed = stream(alice, chat, "hello", session)
    assert (text_of(streamed), len(streamed), final_of(streamed)["finish_reason"]) == ("", 2, "stop")
    assert spoken(alice, session)[1:] == [("user", "hello"), ("assistant", "")]
    assert len(read(alice, session)["reference"]) == 1


def test_an_answer_cut_by_the_models_limit_says_so(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: says("lon", finish=FinishReason.LENGTH))
    assert final_of(stream(alice, chat, "hello", session))["finish_reason"] == "length"
    assert read(alice, session)["messages"][-1]["finish_reason"] == "length"
    assert runs(alice, session)[0]["outcome"] == "length"


def test_a_plain_reply_is_one_envelope_with_the_whole_answer(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: says("Hel", "lo", chunks=("a",)))
    response = alice("POST", path(chat), body("hello", session) | {"stream": False})
    answer, stored = response.get_json(), read(alice, session)["messages"][-1]
    data = answer["data"]
    assert (response.mimetype, answer["code"]) == ("application/json", 0)
    assert (data["answer"], data["session_id"], data["chat_id"]) == ("Hello", session["id"], chat["id"])
    assert (data["id"], data["run_id"]) == (stored["id"], response.headers["X-Chatkeep-Run"])
    assert [found["id"] for found in data["reference"]["chunks"]] == ["a"]
    assert {"audio_binary", "prompt", "created_at"} <= data.keys()
    assert data["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_turn_is_stored_as_question_and_answer_under_one_id(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, streams: bool
) -> None:
    model.script("hello", lambda: says("Hi", chunks=("a",)))
    stream(alice, chat, "hello", session) if streams else ask(alice, chat, "hello", session)
    stored = read(alice, session)
    _, question, answer = stored["messages"]
    assert (question["role"], question["content"], answer["role"], answer["content"]) == (
        "user", "hello", "assistant", "Hi",
    )
    assert question["id"] == answer["id"] == stored["reference"][0]["message_id"]
    assert isinstance(answer["created_at"], float) and answer["uid"] != question["uid"]
    assert cited(stored) == {"Hi": ["a"]}


# -- failures and stops -------------------------------------------------------------------------


@pytest.mark.parametrize("code", ErrorCode)
def test_a_failed_stream_ends_with_one_error_frame_and_nothing_behind_it(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, code: ErrorCode
) -> None:
    model.script("hello", lambda: fails("par", "tial", code=code))
    text = alice("POST", path(chat), body("hello", session)).get_data(as_text=True)
    *deltas, last = frames(text)
    turn_id = read(alice, session)["messages"][-1]["id"]
    assert text_of([frame["data"] for frame in deltas]) == "partial"
    assert (last["code"], last["message"]) == (500, "The model failed.")
    assert last["data"] == {
        "answer": "**ERROR**: The model failed.", "reference": [], "final": True, "finish_reason": "error",
        "error_code": code, "id": turn_id, "session_id": session["id"], "chat_id": chat["id"],
        "run_id": last["data"]["run_id"],
    }
    assert "secret detail" not in text


def test_a_failure_before_the_first_word_is_one_frame(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", fails)
    [only] = frames(alice("POST", path(chat), body("hello", session)).get_data(as_text=True))
    assert only["code"] == 500
    assert spoken(alice, session)[1:] == [("user", "hello"), ("assistant", "")]


def test_a_failed_plain_reply_is_102_with_the_models_code(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: fails("par", code=ErrorCode.TIMEOUT))
    response = alice("POST", path(chat), body("hello", session) | {"stream": False})
    answer = response.get_json()
    assert (response.status_code, answer["code"], answer["message"]) == (200, 102, "The model failed.")
    data = answer["data"]
    assert (data["answer"], data["reference"]) == ("**ERROR**: The model failed.", [])
    assert (data["error_code"], data["session_id"]) == ("TIMEOUT", session["id"])
    assert data["id"] == read(alice, session)["messages"][-1]["id"]
    assert "secret detail" not in response.get_data(as_text=True)


def test_a_failed_turn_keeps_the_partial_text_and_our_sentence_only(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, streams: bool
) -> None:
    model.script("hello", lambda: fails("par"))
    alice("POST", path(chat), body("hello", session) | {"stream": streams}).get_data()
    stored = read(alice, session)
    answer = stored["messages"][-1]
    assert (answer["content"], answer["finish_reason"], answer["error_code"], answer["error_message"]) == (
        "par", "error", "MODEL_ERROR", "The model failed.",
    )
    assert "secret detail" not in json.dumps(stored) and "**ERROR**" not in json.dumps(stored)
    assert [slot["message_id"] for slot in stored["reference"]] == [answer["id"]]


def test_a_bug_in_the_answerer_ends_the_run_as_an_internal_error(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: iter([TextDelta("par"), 1 / 0]))  # type: ignore[list-item]
    [only] = frames(alice("POST", path(chat), body("hello", session)).get_data(as_text=True))
    assert (only["code"], only["data"]["error_code"]) == (500, "INTERNAL_ERROR")
    assert "division" not in json.dumps(only)
    assert ask(alice, chat, "next", session)["answer"] == "You said: next"


def test_a_stopped_stream_ends_as_an_ordinary_one_that_says_interrupted(
    alice: Person, chat: Any, session: Any, busy: Any
) -> None:
    alice.ok("POST", f"/runs/{busy.headers['X-Chatkeep-Run']}/cancel")
    streamed = [frame["data"] for frame in frames(busy.get_data(as_text=True))]
    assert (text_of(streamed), final_of(streamed)["finish_reason"]) == ("half", "interrupted")
    assert spoken(alice, session)[1:] == [("user", "slow?"), ("assistant", "half")]
    assert len(read(alice, session)["reference"]) == 1


def test_a_stopped_plain_reply_is_a_success_with_the_partial_text(
    alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    waiting = later(lambda: ask(twin(alice), chat, "slow?", session))
    assert gate.reached.wait(10)
    alice.ok("POST", f"/runs/{runs(alice, session)[0]['id']}/cancel")
    data = waiting.result(10)
    assert (data["answer"], data["finish_reason"]) == ("half", "interrupted")


def test_a_run_stopped_before_its_first_word_stores_an_empty_answer(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    gate = Gate()
    model.script("hello", gate)
    response = alice("POST", path(chat), body("hello", session))
    assert gate.reached.wait(10)
    alice.ok("POST", f"/runs/{response.headers['X-Chatkeep-Run']}/cancel")
    gate.opened.set()
    assert [frame["data"] for frame in frames(response.get_data(as_text=True))][-1] is True
    assert spoken(alice, session)[1:] == [("user", "hello"), ("assistant", "")]


def test_a_server_that_shuts_down_stores_what_it_has_and_refuses_new_questions(
    app: Flask, alice: Person, chat: Any, session: Any, busy: Any
) -> None:
    close_app(app)
    streamed = [frame["data"] for frame in frames(busy.get_data(as_text=True))]
    assert (text_of(streamed), final_of(streamed)["finish_reason"]) == ("half", "interrupted")
    response = alice("POST", path(chat), body("hello", session))
    assert (response.status_code, int(response.headers["Retry-After"]) > 0) == (503, True)
    assert refused(alice, path(chat), body("hello", session))[0] == 503
    assert spoken(alice, session)[1:] == [("user", "slow?"), ("assistant", "half")]
    assert runs(alice, session)[0]["outcome"] == "shutdown"


def test_a_session_deleted_under_its_run_gives_its_reader_the_error_frame(
    alice: Person, chat: Any, session: Any, gate: Gate, busy: Any
) -> None:
    alice.ok("DELETE", f"/chats/{chat['id']}/sessions", {"ids": [session["id"]]})
    gate.opened.set()
    *_, last = frames(busy.get_data(as_text=True))
    assert (last["code"], last["data"]["finish_reason"]) == (500, "error")
    assert sessions(alice, chat) == []


class TestOurOwnBug:
    """A bug of the server is code 100 and a generic sentence, in the shape of the path."""

    class BrokenModels(ScriptedModels):
        def find(self, llm_id: str) -> ScriptedModel | None:
            raise RuntimeError("secret detail")

    @pytest.fixture
    def models(self) -> ScriptedModels:
        return self.BrokenModels()

    def test_tells_nothing_of_its_cause(self, alice: Person, chat: Any, streams: bool) -> None:
        code, text = refused(alice, path(chat), body("hello") | {"stream": streams})
        assert code == 100 and "secret" not in text and "RuntimeError" not in text
        assert sessions(alice, chat) == []


# -- the same question again --------------------------------------------------------------------


@pytest.mark.parametrize("answer", [lambda: says("Hi", chunks=("a",)), says, lambda: fails("par")],
                         ids=["success", "empty", "failure"])
def test_a_question_sent_again_gets_its_stored_ending(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, answer: Callable[[], Any]
) -> None:
    model.script("hello", answer)
    request = body("hello", session, id="m1")
    first, again = (frames(alice("POST", path(chat), request).get_data(as_text=True)) for _ in range(2))
    joined = [text_of([frame["data"] for frame in part if frame["code"] == 0]) for part in (first, again)]
    assert joined[0] == joined[1]
    stable = {"code", "message"}
    assert {k: again[-1][k] for k in stable} == {k: first[-1][k] for k in stable}
    ending = [part[-2 if part[-1]["data"] is True else -1]["data"] for part in (first, again)]
    names = ("id", "session_id", "chat_id", "run_id", "reference", "final", "finish_reason", "answer")
    assert [ending[1][name] for name in names] == [ending[0][name] for name in names]
    assert len(model.requests) == 1 and len(read(alice, session)["messages"]) == 3


def test_the_last_frame_tells_the_stored_time_of_the_answer_also_when_it_is_replayed(
    alice: Person, chat: Any, session: Any
) -> None:
    told = [final_of(stream(alice, chat, "hello", session, **body("hello", id="m1")))["created_at"] for _ in range(2)]
    assert told == [read(alice, session)["messages"][-1]["created_at"]] * 2


def test_a_stopped_question_sent_again_stays_stopped(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    gate = Gate("half")
    model.script("hello", gate)
    response = alice("POST", path(chat), body("hello", session, id="m1"))
    assert gate.reached.wait(10)
    alice.ok("POST", f"/runs/{response.headers['X-Chatkeep-Run']}/cancel")
    gate.opened.set()
    again = ask(alice, chat, "hello", session, **body("hello", id="m1"))
    assert (again["answer"], again["finish_reason"]) == ("half", "interrupted")
    assert len(model.requests) == 1


def test_a_plain_failure_sent_again_is_102_again(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: fails("par", code=ErrorCode.RATE_LIMIT))
    request = body("hello", session, id="m1") | {"stream": False}
    first, again = (alice("POST", path(chat), request).get_json() for _ in range(2))
    assert again == first and again["code"] == 102 and again["data"]["error_code"] == "RATE_LIMIT"


def test_a_known_id_with_other_words_is_refused(alice: Person, chat: Any, session: Any, streams: bool) -> None:
    stream(alice, chat, "hello", session, **body("hello", id="m1"))
    before = read(alice, session)
    assert refused(alice, path(chat), body("bye", session, id="m1") | {"stream": streams})[0] == 102
    assert read(alice, session) == before


def test_the_same_question_under_a_new_id_is_asked_again(alice: Person, chat: Any, session: Any) -> None:
    for id in ("m1", "m2"):
        alice.ok("POST", path(chat), body("hello", session, id=id) | {"stream": False})
    assert [entry.get("id") for entry in read(alice, session)["messages"]] == [None, "m1", "m1", "m2", "m2"]


def test_a_known_id_of_another_session_is_a_new_question(alice: Person, chat: Any, session: Any) -> None:
    other = alice.ok("POST", f"/chats/{chat['id']}/sessions", {})
    for where in (session, other):
        alice.ok("POST", path(chat), body("hello", where, id="m1") | {"stream": False})
    assert len(read(alice, other)["messages"]) == 3


def test_a_question_sent_again_while_it_is_answered_joins_its_run(
    alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    request = body("slow?", session, id="m1")
    first = alice("POST", path(chat), request)
    assert gate.reached.wait(10)
    second = alice("POST", path(chat), request)
    gate.opened.set()
    assert first.headers["X-Chatkeep-Run"] == second.headers["X-Chatkeep-Run"]
    told = [
        [frame["data"] is True or frame["data"] | {"created_at": 0} for frame in frames(part.get_data(as_text=True))]
        for part in (first, second)
    ]
    assert told[0] == told[1] and told[0][-1] is True
    assert spoken(alice, session)[1:] == [("user", "slow?"), ("assistant", "halfdone")]


def test_of_many_at_once_with_one_id_all_get_the_one_answer(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    people = [twin(alice) for _ in range(8)]
    for n in range(1, 16):
        request = body("hello", session, id=f"m{n}") | {"stream": False}
        answers = at_once(*(lambda who=who: who.ok("POST", path(chat), request) for who in people))  # type: ignore[misc]  # noqa: B023
        assert len({answer["run_id"] for answer in answers}) == 1
        assert (len(model.requests), len(read(alice, session)["messages"])) == (n, 1 + 2 * n)


def test_an_idempotency_key_stands_for_the_question(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    request, headers = body("hello", session) | {"stream": False}, {"Idempotency-Key": "k1"}
    first, again = (alice.ok("POST", path(chat), request, headers=headers) for _ in range(2))
    assert (again["run_id"], again["id"], again["answer"]) == (first["run_id"], first["id"], "You said: hello")
    assert (len(model.requests), len(read(alice, session)["messages"])) == (1, 3)
    alice.ok("POST", path(chat), request, headers={"Idempotency-Key": "k2"})
    assert len(read(alice, session)["messages"]) == 5


def test_an_idempotency_key_with_another_question_is_refused(alice: Person, chat: Any, session: Any) -> None:
    headers = {"Idempotency-Key": "k1"}
    alice.ok("POST", path(chat), body("hello", session) | {"stream": False}, headers=headers)
    before = read(alice, session)
    assert refused(alice, path(chat), body("bye", session), headers=headers)[0] == 102
    assert read(alice, session) == before


def test_of_many_at_once_with_one_key_all_get_the_one_answer(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    request, headers = body("hello", session) | {"stream": False}, {"Idempotency-Key": "k1"}
    people = [twin(alice) for _ in range(8)]
    answers = at_once(*(
        lambda who=who: who.ok("POST", path(chat), request, headers=headers) for who in people  # type: ignore[misc]
    ))
    assert len({answer["run_id"] for answer in answers}) == 1
    assert (len(model.requests), len(read(alice, session)["messages"])) == (1, 3)


# -- the client's own history -------------------------------------------------------------------


def said(*texts: str, **first: Any) -> list[dict[str, Any]]:
    """Messages that alternate, the user first."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    messages[0] |= first
    return messages


def seen(model: ScriptedModel) -> list[tuple[str, str]]:
    """What the model was given last, as role and text."""
    return [(message["role"], message["content"]) for message in model.requests[-1].messages]


def with_history(person: Person, chat: Any, messages: list[Any], session: Any = None, **more: Any) -> Any:
    named = {"session_id": session["id"]} if session else {}
    request = {"messages": messages, "pass_all_history_messages": True, "stream": False}
    return person.ok("POST", path(chat), request | named | more)


def test_a_conversation_begun_elsewhere_goes_on_here(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    with_history(alice, chat, said("u1", "a1", "u2", "a2", "hello", id="x1"), session)
    stored = read(alice, session)
    assert spoken(alice, session) == [
        ("assistant", "Welcome."), ("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "a2"),
        ("user", "hello"), ("assistant", "You said: hello"),
    ]
    ids = [entry.get("id") for entry in stored["messages"]]
    assert ids[:3] == [None, "x1", "x1"] and ids[3] == ids[4] and ids[5] == ids[6] and len(set(ids)) == 4
    assert [slot["message_id"] for slot in stored["reference"]] == ids[1::2]
    assert [slot["chunks"] for slot in stored["reference"][:2]] == [[], []]
    assert [text for _, text in seen(model)][-5:] == ["u1", "a1", "u2", "a2", "hello"]


def test_a_document_with_turns_does_not_change_by_the_clients_history(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    ask(alice, chat, "first", session)
    before = read(alice, session)
    with_history(alice, chat, said("forged", "words", "hello"), session)
    after = read(alice, session)
    assert after["messages"][:3] == before["messages"]
    assert spoken(alice, session)[3:] == [("user", "hello"), ("assistant", "You said: hello")]
    assert [text for _, text in seen(model)][-3:] == ["forged", "words", "hello"]


def test_an_empty_history_of_the_client_is_a_history_too(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    ask(alice, chat, "first", session)
    with_history(alice, chat, said("hello"), session)
    assert ("user", "first") not in seen(model)
    assert len(read(alice, session)["messages"]) == 5


def test_an_opening_line_of_the_client_is_dropped_where_there_is_a_prologue(
    alice: Person, chat: Any, session: Any
) -> None:
    opening = {"role": "assistant", "content": "Other welcome."}
    with_history(alice, chat, [opening, *said("u1", "a1", "hello")], session)
    assert [text for _, text in spoken(alice, session)] == ["Welcome.", "u1", "a1", "hello", "You said: hello"]


def test_an_opening_line_of_the_client_is_kept_where_there_is_no_prologue(alice: Person) -> None:
    chat = alice.ok("POST", "/chats", {"name": "mute", "prompt_config": {"prologue": ""}})
    opening = {"role": "assistant", "content": "Other welcome.", "id": "o1"}
    data = with_history(alice, chat, [opening, *said("u1", "a1", "hello")])
    stored = read(alice, {"chat_id": chat["id"], "id": data["session_id"]})
    assert [entry["content"] for entry in stored["messages"]] == [
        "Other welcome.", "u1", "a1", "hello", "You said: hello",
    ]
    assert "id" not in stored["messages"][0] and len(stored["reference"]) == 2


def test_system_messages_are_for_the_model_only(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    system = {"role": "system", "content": "Speak like a pirate."}
    with_history(alice, chat, [system, *said("u1", "a1", "hello")], session)
    assert "system" not in {role for role, _ in spoken(alice, session)}
    assert "pirate" not in json.dumps(read(alice, session))
    assert "pirate" in seen(model)[0][1] and seen(model)[0][0] == "system"


def test_two_questions_of_one_id_in_a_request_are_refused(
    alice: Person, chat: Any, session: Any, streams: bool
) -> None:
    messages = [*said("u1", "a1", id="x"), *said("u2", "a2", id="x"), USER]
    request = {"messages": messages, "session_id": session["id"], "stream": streams}
    assert refused(alice, path(chat), request | {"pass_all_history_messages": True})[0] == 102
    assert spoken(alice, session) == [("assistant", "Welcome.")]


def test_without_the_switch_earlier_messages_are_neither_stored_nor_shown_to_the_model(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    alice.ok("POST", path(chat), {
        "messages": said("u1", "a1", "hello"), "session_id": session["id"], "stream": False,
    })
    assert spoken(alice, session)[1:] == [("user", "hello"), ("assistant", "You said: hello")]
    assert "u1" not in [text for _, text in seen(model)]


def test_a_brought_turn_can_be_deleted_and_voted_on_like_any_other(alice: Person, chat: Any, session: Any) -> None:
    with_history(alice, chat, said("u1", "a1", "hello", id="x1"), session)
    where = f"/chats/{chat['id']}/sessions/{session['id']}/messages/x1"
    voted = alice.ok("PUT", f"{where}/feedback", {"thumbup": True})
    assert [entry.get("thumbup") for entry in voted["messages"]] == [None, None, True, None, None]
    alice.ok("DELETE", where)
    assert [text for _, text in spoken(alice, session)] == ["Welcome.", "hello", "You said: hello"]
    assert len(read(alice, session)["reference"]) == 1


def test_the_stored_history_reaches_the_model_in_order(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    for question in ("q1", "q2", "q3"):
        ask(alice, chat, question, session)
    assert [message for message in seen(model) if message[0] != "system"] == [
        ("user", "q1"), ("assistant", "You said: q1"), ("user", "q2"), ("assistant", "You said: q2"), ("user", "q3"),
    ]


# -- two questions at once ----------------------------------------------------------------------


def test_a_question_waits_for_its_turn(alice: Person, chat: Any, session: Any, gate: Gate, busy: Any) -> None:
    waiting = later(lambda: stream(twin(alice), chat, "next", session))
    until(lambda: runs(alice, session, "queued"))
    assert spoken(alice, session)[-1] == ("user", "slow?")
    gate.opened.set()
    assert text_of(waiting.result(10)) == "You said: next"
    assert [text for _, text in spoken(alice, session)][1:] == ["slow?", "halfdone", "next", "You said: next"]


def test_reject_answers_409_and_leaves_nothing(
    alice: Person, chat: Any, session: Any, streams: bool, busy: Any, gate: Gate
) -> None:
    request = body("next", session) | {"on_conflict": "reject", "stream": streams}
    response = alice("POST", path(chat), request)
    assert (response.status_code, int(response.headers["Retry-After"]) > 0) == (409, True)
    assert refused(alice, path(chat), request)[0] == 409
    gate.opened.set()
    busy.get_data()
    assert [text for _, text in spoken(alice, session)][1:] == ["slow?", "halfdone"]
    assert len(runs(alice, session)) == 1


def test_interrupt_stops_the_first_and_answers_the_second(
    alice: Person, chat: Any, session: Any, busy: Any
) -> None:
    assert ask(alice, chat, "next", session, on_conflict="interrupt")["answer"] == "You said: next"
    assert [text for _, text in spoken(alice, session)][1:] == ["slow?", "half", "next", "You said: next"]
    streamed = [frame["data"] for frame in frames(busy.get_data(as_text=True))]
    assert final_of(streamed)["finish_reason"] == "interrupted"


@pytest.mark.parametrize("policy", ["queue", "reject", "interrupt", "", None])
def test_in_a_quiet_session_every_policy_just_answers(
    alice: Person, chat: Any, session: Any, policy: Any
) -> None:
    assert ask(alice, chat, "next", session, on_conflict=policy)["answer"] == "You said: next"


@pytest.mark.parametrize("policy", ["wait", "QUEUE", 1, ["queue"], {}])
def test_an_unknown_policy_is_an_argument_error(
    alice: Person, chat: Any, session: Any, policy: Any
) -> None:
    code, text = refused(alice, path(chat), body("next") | {"on_conflict": policy})
    assert code == 101 and "on_conflict" in text
    assert len(sessions(alice, chat)) == 1


@pytest.mark.settings(runs={"poll": 0.05, "queue_timeout": 0.3})
def test_a_question_whose_turn_does_not_come_is_refused_and_leaves_nothing(
    alice: Person, chat: Any, session: Any, busy: Any, streams: bool
) -> None:
    response = alice("POST", path(chat), body("next", session, id="m2") | {"stream": streams})
    assert (response.status_code, int(response.headers["Retry-After"]) > 0) == (409, True)
    assert spoken(alice, session)[-1] == ("user", "slow?")
    assert [run["status"] for run in runs(alice, session)] == ["active"]


@pytest.mark.settings(runs={"poll": 0.05, "queue_length": 1})
def test_a_full_queue_refuses_the_next_question(
    alice: Person, chat: Any, session: Any, gate: Gate, busy: Any
) -> None:
    waiting = later(lambda: ask(twin(alice), chat, "next", session))
    until(lambda: runs(alice, session, "queued"))
    assert refused(alice, path(chat), body("third", session))[0] == 409
    gate.opened.set()
    assert waiting.result(10)["answer"] == "You said: next"
    assert "third" not in [text for _, text in spoken(alice, session)]


def test_sessions_do_not_wait_for_each_other(alice: Person, chat: Any, busy: Any) -> None:
    assert ask(alice, chat, "hello")["answer"] == "You said: hello"


# -- what a client may put on its message -------------------------------------------------------


def test_a_clients_own_keys_stay_on_its_message(alice: Person, chat: Any, session: Any) -> None:
    own = {
        "files": [{"id": "f1", "name": "a.pdf"}], "doc_ids": ["d1"], "metadata": {"a": [1, None]}, "name": "Ann",
        "color": "red", "nested": {"list": [{}], "null": None}, "zero": 0,
    }
    alice.ok("POST", path(chat), body("hello", session, **own) | {"stream": False})
    question = read(alice, session)["messages"][1]
    assert {name: question[name] for name in own} == own


def test_a_clients_keys_that_have_our_names_are_dropped(alice: Person, chat: Any, session: Any) -> None:
    ours = {
        "seq": 99, "uid": "mine", "created_at": 1, "finish_reason": "error", "error_code": "X",
        "error_message": "m", "status": "incomplete", "run_id": "r", "tool_calls": [{"id": "t"}],
        "tool_call_id": "t", "tool_name": "n", "encrypted_value": "e", "activity_type": "a", "step": 1,
        "subagent_run_id": "s", "hidden": True, "token_count": 5, "thumbup": True, "feedback": "f",
    }
    alice.ok("POST", path(chat), body("hello", session, **ours) | {"stream": False})
    question = read(alice, session)["messages"][1]
    assert question.keys() == {"role", "content", "id", "uid", "seq", "created_at"}
    assert question["seq"] == 2 and question["uid"] != "mine" and question["created_at"] > 1


def test_files_beside_a_question_go_onto_its_message(alice: Person, chat: Any, session: Any) -> None:
    files = [{"id": "f1", "name": "a.pdf"}]
    alice.ok("POST", path(chat), {
        "question": "hello", "files": files, "session_id": session["id"], "stream": False,
    })
    assert read(alice, session)["messages"][1]["files"] == files


def test_a_clients_message_id_is_the_turns_id(alice: Person, chat: Any, session: Any) -> None:
    data = alice.ok("POST", path(chat), body("hello", session, id="m" * 255) | {"stream": False})
    assert data["id"] == "m" * 255
    assert [entry["id"] for entry in read(alice, session)["messages"][1:]] == ["m" * 255] * 2


# -- limits: a clear error, and nothing written -------------------------------------------------


@pytest.mark.parametrize(("request_body", "headers"), [
    (body("hello", id="m" * 256), {}), (body("hello", id=7), {}), (body("hello") | {"user_id": "u" * 256}, {}),
    (body("hello") | {"user_id": 7}, {}), (body("hello") | {"session_id": 7}, {}),
    (body("hello") | {"chat_id": ["x"]}, {}), (body("hello"), {"Idempotency-Key": "k" * 256}),
    (body("hello", extra="e" * 17_000), {}), (body("hello", big=2**64), {}),
    (body("x" * 262_145), {}), (body("ü" * 131_073), {}), (body([{"type": "text"}]), {}),  # type: ignore[arg-type]
    ({"messages": [{"role": "tool", "content": "x"}, USER]}, {}),
], ids=["long id", "number as id", "long user", "number as user", "number as session", "list as chat", "long key",
        "large extras", "big integer", "long message", "long message in bytes", "parts", "role"])
def test_what_breaks_a_limit_is_an_argument_error_and_nothing_is_written(
    alice: Person, chat: Any, request_body: Any, headers: dict[str, str]
) -> None:
    for streams in (True, False):
        assert refused(alice, path(chat), request_body | {"stream": streams}, headers=headers)[0] == 101
    assert sessions(alice, chat) == []


def test_what_just_meets_a_limit_is_stored_whole(alice: Person, chat: Any, session: Any) -> None:
    text = "ü" * 131_072
    request = body(text, session, id="m" * 255, extra="e" * 16_000)
    alice.ok("POST", path(chat), request | {"stream": False}, headers={"Idempotency-Key": "k" * 255})
    question = read(alice, session)["messages"][1]
    assert (question["content"], question["extra"]) == (text, "e" * 16_000)


def test_a_body_nested_too_deeply_is_an_argument_error(alice: Person, chat: Any) -> None:
    deep: Any = []
    for _ in range(64):
        deep = [deep]
    assert refused(alice, path(chat), body("hello", deep=deep))[0] == 101
    raw = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert refused(alice, path(chat), None, data=raw, content_type="application/json")[0] == 101
    assert sessions(alice, chat) == []


@pytest.mark.settings(limits={"body_bytes": 2_000, "upload_bytes": 6_000})
def test_a_body_over_the_limit_is_413_unless_it_brings_a_history(
    alice: Person, chat: Any, streams: bool
) -> None:
    request = {"messages": said("u" * 3_000, "a1", "hello"), "stream": streams}
    response = alice("POST", path(chat), request)
    assert response.status_code == 413
    assert refused(alice, path(chat), request)[0] == 413
    assert sessions(alice, chat) == []
    assert alice("POST", path(chat), request | {"pass_all_history_messages": True}).get_data()
    assert len(sessions(alice, chat)) == 1
    too_much = {"messages": said("u" * 7_000, "a1", "hello"), "pass_all_history_messages": True}
    assert refused(alice, path(chat), too_much)[0] == 413


def test_a_nul_a_half_surrogate_and_nan_are_cleaned_alike_on_both_engines(
    alice: Person, chat: Any, session: Any
) -> None:
    raw = (
        '{"messages": [{"role": "user", "content": "a\\u0000b\\ud83dc\\ud83d\\ude00",'
        ' "n": NaN, "k\\u0000": "\\u0000"}],'
        f' "session_id": "{session["id"]}", "stream": false}}'
    )
    data = alice.ok("POST", path(chat), data=raw.encode(), content_type="application/json")
    question = read(alice, session)["messages"][1]
    assert (question["content"], question["n"], question["k"]) == ("ab\ufffdc😀", None, "")
    assert data["answer"] == "You said: ab\ufffdc😀"


def test_a_surrogate_pair_cut_between_two_deltas_is_joined(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: says("a\ud83d", "\ude00b\x00", "\ud83d"))
    assert text_of(stream(alice, chat, "hello", session)) == "a😀b\ufffd"
    assert spoken(alice, session)[-1] == ("assistant", "a😀b\ufffd")


# -- what a refusal leaves, and ids that meet ------------------------------------------------------


def test_a_refused_question_leaves_no_session(alice: Person, chat: Any, app: Flask) -> None:
    app.extensions["chatkeep"].workers.draining = True
    assert alice("POST", path(chat), body("q")).status_code == 503
    assert alice.ok("GET", f"/chats/{chat['id']}/sessions") == []


@pytest.mark.parametrize("on_conflict", ["queue", "reject", "interrupt"])
def test_an_answers_id_in_a_given_history_gives_way_to_a_question_of_that_id(
    alice: Person, chat: Any, session: Any, on_conflict: str
) -> None:
    """A question's id names its turn."""
    given = [("assistant", "z"), ("user", "u1"), ("assistant", "a1"), ("user", "z"), ("assistant", "z"), ("user", "a1")]
    messages = [{"role": role, "content": f"text {n}", "id": id} for n, (role, id) in enumerate(given)]
    ask(alice, chat, "", session, pass_all_history_messages=True, on_conflict=on_conflict, messages=messages)
    stored = read(alice, session)["messages"]
    assert [(entry["id"], entry["content"]) for entry in stored if entry["role"] == "user"] == [
        ("u1", "text 1"), ("z", "text 3"), ("a1", "text 5")
    ]
