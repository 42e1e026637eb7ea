"""Coming back to a run: its frames again, from wherever the reader was, each delta once."""

import time
from typing import Any

import pytest
from flask import Flask

from db.database import change, connection
from services.events import ReasoningDelta, TextDelta
from services.runs import journal
from tests.conftest import Person
from tests.contracts.wire import ask, body, final_of, frames, later, path, runs, text_of, twin, until
from tests.fakes import Gate, ScriptedModel, fails, says

pytestmark = pytest.mark.usefixtures("settled")
WORDS = ("one ", "two ", "three ", "four")


def followed(person: Person, run_id: str, last_event_id: str | None = None, where: str = "/runs") -> Any:
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    response = person("GET", f"{where}/{run_id}/events", headers=headers)
    assert (response.status_code, response.mimetype) == (200, "text/event-stream"), response.get_json()
    assert response.headers["X-Chatkeep-Run"] == run_id
    return response


def data_of(response: Any) -> list[Any]:
    return [frame["data"] for frame in frames(response.get_data(as_text=True))]


def ids_of(text: str) -> list[str]:
    return [line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")]


@pytest.fixture
def asked(alice: Person, chat: Any, session: Any, model: ScriptedModel) -> Any:
    """The whole stream of a question as its first reader got it, and its run's id."""
    model.script("count", lambda: says(*WORDS, chunks=("c",)))
    response = alice("POST", path(chat), body("count", session))
    return response.get_data(as_text=True), response.headers["X-Chatkeep-Run"]


def test_an_ended_run_is_read_again_as_it_was_said(alice: Person, asked: Any) -> None:
    text, run_id = asked
    assert followed(alice, run_id).get_data(as_text=True) == text


@pytest.mark.parametrize("where", ["alias", "session"])
def test_a_reader_gets_what_is_behind_its_last_event(alice: Person, session: Any, asked: Any, where: str) -> None:
    text, run_id = asked
    under = "/runs" if where == "alias" else f"/chats/{session['chat_id']}/sessions/{session['id']}/runs"
    names = ids_of(text)
    for seen in range(len(set(names))):
        rest = followed(alice, run_id, names[seen], under).get_data(as_text=True)
        assert ids_of(rest) == names[seen + 1 :] or (seen >= len(WORDS) and ids_of(rest)[-1] == names[-1])
        whole = text_of([frame["data"] for frame in frames(text)][: seen + 1]) + text_of(
            [frame["data"] for frame in frames(rest)]
        )
        assert whole == "".join(WORDS)
        assert final_of([frame["data"] for frame in frames(rest)])["reference"]["chunks"][0]["id"] == "c"


@pytest.mark.parametrize("position", [
    "{run}:99999", "{run}:99999999999999999999999", "{run}:-1", "{run}:x", "{run}:", "{run}", ":", ":3", "nonsense",
    "ffffffffffffffffffffffffffffffff:2", "{run}:2:2", "{run}:²", "{run}:1e3",
])
def test_a_position_that_is_none_gets_the_runs_end_alone(alice: Person, asked: Any, position: str) -> None:
    _, run_id = asked
    end = data_of(followed(alice, run_id, position.replace("{run}", run_id)))
    assert (len(end), text_of(end)) == (2, "")
    assert (final_of(end)["finish_reason"], final_of(end)["reference"]["total"]) == ("stop", 1)


def test_after_the_journals_grace_the_answer_and_the_end_are_left(alice: Person, asked: Any, app: Flask) -> None:
    text, run_id = asked
    with connection():
        change("UPDATE {run} SET ended_at = ended_at - 1000")
        journal.forget(600)
    assert text_of(data_of(followed(alice, run_id))) == "".join(WORDS)
    end = data_of(followed(alice, run_id, ids_of(text)[1]))
    assert (text_of(end), final_of(end)["finish_reason"]) == ("", "stop")


def test_a_running_answer_is_joined_by_any_number_of_readers(
    alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    first = alice("POST", path(chat), body("slow?", session))
    assert gate.reached.wait(10)
    [active] = runs(alice, session, "active")
    tabs = [later(lambda: data_of(followed(twin(alice), active["id"]))) for _ in range(3)]
    behind = later(lambda: data_of(followed(twin(alice), active["id"], f"{active['id']}:1")))
    time.sleep(0.2)
    gate.opened.set()
    whole = [frame["data"] for frame in frames(first.get_data(as_text=True))]
    assert [tab.result(10) for tab in tabs] == [whole] * 3
    assert text_of(behind.result(10)) == "done"


def test_reasoning_is_resumed_with_its_flags(alice: Person, chat: Any, session: Any, model: ScriptedModel) -> None:
    def thinks() -> Any:
        yield ReasoningDelta("hm")
        yield TextDelta("so")

    model.script("think", thinks)
    response = alice("POST", path(chat), body("think", session))
    whole = [frame["data"] for frame in frames(response.get_data(as_text=True))]
    assert [("start_to_think" in data, "end_to_think" in data) for data in whole[:4]] == [
        (True, False), (False, False), (False, True), (False, False)
    ]
    assert data_of(followed(alice, response.headers["X-Chatkeep-Run"])) == whole


def test_a_failure_is_told_again(alice: Person, chat: Any, session: Any, model: ScriptedModel) -> None:
    model.script("fail", lambda: fails("half"))
    response = alice("POST", path(chat), body("fail", session))
    whole = [frame["data"] for frame in frames(response.get_data(as_text=True))]
    assert data_of(followed(alice, response.headers["X-Chatkeep-Run"])) == whole
    assert whole[-1]["error_code"] == "MODEL_ERROR"


def test_a_run_that_stores_nothing_is_read_again_until_it_is_forgotten(alice: Person, chat: Any) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], "store_history_messages": False,
             "pass_all_history_messages": True}
    response = alice("POST", path(chat), asked)
    whole = [frame["data"] for frame in frames(response.get_data(as_text=True))]
    again = data_of(followed(alice, response.headers["X-Chatkeep-Run"]))
    assert text_of(again) == text_of(whole) == "You said: hi"


@pytest.mark.settings(runs={"queue_timeout": 0.3, "poll": 0.05})
def test_a_waiting_run_that_does_not_begin_in_time_is_refused(
    alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    alice("POST", path(chat), body("slow?", session))
    assert gate.reached.wait(10)
    waiting = later(lambda: twin(alice)("POST", path(chat), body("next", session)).status_code)
    [queued] = until(lambda: runs(alice, session, "queued"))
    assert twin(alice)("GET", f"/runs/{queued['id']}/events").status_code == 409
    assert waiting.result(10) == 409


def test_a_question_sent_again_is_replayed_delta_by_delta(alice: Person, chat: Any, session: Any,
                                                          model: ScriptedModel) -> None:
    model.script("count", lambda: says(*WORDS))
    first = alice("POST", path(chat), body("count", session), headers={"Idempotency-Key": "k"}).get_data(as_text=True)
    again = alice("POST", path(chat), body("count", session), headers={"Idempotency-Key": "k"}).get_data(as_text=True)
    assert again == first
    assert ask(alice, chat, "count", session)["answer"] == "".join(WORDS)
    assert len(model.requests) == 2
