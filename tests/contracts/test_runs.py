"""Runs over our own routes: what is being answered can be seen and stopped, by its tenant alone."""

from datetime import datetime
from typing import Any

import pytest

from tests.conftest import Person
from tests.contracts.wire import ask, body, later, path, read, runs, spoken, stream, twin, until
from tests.fakes import Gate, ScriptedModel, fails

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def running(alice: Person, chat: Any, session: Any, gate: Gate) -> Any:
    """The run of a question that is being answered."""
    response = alice("POST", path(chat), body("slow?", session))
    assert gate.reached.wait(10)
    run = alice.ok("GET", f"/runs/{response.headers['X-Chatkeep-Run']}")
    return run | {"response": response}


def in_session(session: Any, run_id: str = "") -> str:
    return f"/chats/{session['chat_id']}/sessions/{session['id']}/runs" + (f"/{run_id}" if run_id else "")


def test_lists_an_active_run_with_all_that_is_known_of_it(alice: Person, session: Any, running: Any) -> None:
    [run] = alice.ok("GET", in_session(session))
    assert run["id"] == running["id"]
    assert (run["session_id"], run["kind"], run["status"]) == (session["id"], "chat", "active")
    assert (run["outcome"], run["finish_reason"], run["error_code"], run["ended_at"]) == (None,) * 4
    assert run["message_id"] == read(alice, session)["messages"][-1]["id"]
    assert run["cancel_requested"] is False


def test_a_runs_times_are_iso_8601_in_utc(alice: Person, chat: Any, session: Any) -> None:
    ask(alice, chat, "hello", session)
    [run] = runs(alice, session)
    assert run["started_at"].endswith("Z") and run["ended_at"].endswith("Z")
    started, ended = (datetime.fromisoformat(run[name]) for name in ("started_at", "ended_at"))
    assert started <= ended and started.utcoffset() is not None


def test_lists_runs_newest_first(alice: Person, chat: Any, session: Any) -> None:
    asked = [ask(alice, chat, f"q{number}", session)["run_id"] for number in range(3)]
    assert [run["id"] for run in runs(alice, session)] == asked[::-1]


def test_an_ended_run_says_how_it_ended(alice: Person, chat: Any, session: Any, model: ScriptedModel) -> None:
    model.script("break", fails)
    ask(alice, chat, "fine", session)
    stream(alice, chat, "break", session)
    broken, fine = runs(alice, session)
    assert (fine["status"], fine["outcome"], fine["finish_reason"]) == ("complete", "success", "stop")
    assert fine["usage"] == {"prompt_tokens": 3, "completion_tokens": 1}
    assert (broken["status"], broken["outcome"], broken["error_code"]) == ("errored", "error", "MODEL_ERROR")


def test_a_run_never_shows_the_providers_words_or_its_owners_address(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("break", fails)
    stream(alice, chat, "break", session)
    answer = alice("GET", in_session(session)).get_data(as_text=True)
    assert "secret detail" not in answer and "owner" not in answer


def test_filters_by_status(alice: Person, chat: Any, session: Any, running: Any, model: ScriptedModel) -> None:
    model.script("break", fails)
    waiting = later(lambda: ask(twin(alice), chat, "next", session))
    [queued] = until(lambda: runs(alice, session, "queued"))
    assert [run["id"] for run in runs(alice, session, "active")] == [running["id"]]
    assert runs(alice, session, "complete") == []
    both = alice.ok("GET", in_session(session) + "?status=active&status=queued")
    assert {run["id"] for run in both} == {running["id"], queued["id"]}
    alice.ok("POST", f"/runs/{running['id']}/cancel")
    assert waiting.result(10)["run_id"] == queued["id"]
    assert [run["id"] for run in runs(alice, session, "interrupted")] == [running["id"]]


def test_an_unknown_status_is_a_bad_request(alice: Person, session: Any) -> None:
    response = alice("GET", in_session(session) + "?status=finished")
    assert (response.status_code, response.get_json()["code"]) == (400, 400)
    assert "finished" in response.get_json()["message"]


def test_a_run_is_found_by_its_session_and_by_its_id_alone(alice: Person, session: Any, running: Any) -> None:
    by_session = alice.ok("GET", in_session(session, running["id"]))
    assert by_session == alice.ok("GET", f"/runs/{running['id']}")
    assert by_session["id"] == running["id"]


def test_a_run_is_not_found_under_another_session(alice: Person, chat: Any, running: Any) -> None:
    other = alice.ok("POST", f"/chats/{chat['id']}/sessions", {})
    for method, tail in (("GET", ""), ("POST", "/cancel")):
        response = alice(method, in_session(other, running["id"]) + tail)
        assert (response.status_code, response.get_json()["message"]) == (404, "Run not found!")
    assert alice.ok("GET", f"/runs/{running['id']}")["status"] == "active"


def test_a_second_token_of_the_tenant_sees_and_stops_the_run(bob: Person, session: Any, running: Any) -> None:
    assert bob.ok("GET", f"/runs/{running['id']}")["status"] == "active"
    assert bob.ok("POST", f"/runs/{running['id']}/cancel") == {"id": running["id"], "cancel_requested": True}
    assert bob.ok("GET", f"/runs/{running['id']}")["status"] == "interrupted"


def test_a_strangers_run_and_an_unknown_one_look_alike(
    alice: Person, charlie: Person, session: Any, running: Any
) -> None:
    for method, tail in (("GET", ""), ("POST", "/cancel")):
        foreign = charlie(method, f"/runs/{running['id']}{tail}")
        unknown = charlie(method, f"/runs/{'0' * 32}{tail}")
        assert (foreign.status_code, foreign.data) == (404, unknown.data)
    assert alice.ok("GET", f"/runs/{running['id']}")["cancel_requested"] is False


def test_a_strangers_session_and_an_unknown_one_look_alike(
    charlie: Person, session: Any, running: Any
) -> None:
    unknown_session = {"chat_id": "0" * 32, "id": "0" * 32}
    for method, tail in (("GET", ""), ("GET", f"/{running['id']}"), ("POST", f"/{running['id']}/cancel")):
        foreign = charlie(method, in_session(session) + tail)
        unknown = charlie(method, in_session(unknown_session) + tail)
        assert (foreign.status_code, foreign.data) == (404, unknown.data)


def test_nobody_without_a_token_sees_or_stops_a_run(alice: Person, nobody: Person, session: Any, running: Any) -> None:
    for method, where in (
        ("GET", in_session(session)), ("GET", f"/runs/{running['id']}"), ("POST", f"/runs/{running['id']}/cancel"),
    ):
        assert nobody(method, where).status_code == 401
    assert alice.ok("GET", f"/runs/{running['id']}")["status"] == "active"


@pytest.mark.parametrize("by_session", [True, False])
def test_cancelling_ends_the_run_and_keeps_its_words(
    alice: Person, session: Any, running: Any, by_session: bool
) -> None:
    where = in_session(session, running["id"]) if by_session else f"/runs/{running['id']}"
    alice.ok("POST", f"{where}/cancel")
    run = until(lambda: (found := alice.ok("GET", where))["status"] != "active" and found)
    assert (run["status"], run["outcome"], run["finish_reason"]) == ("interrupted", "cancelled", "interrupted")
    assert spoken(alice, session)[-2:] == [("user", "slow?"), ("assistant", "half")]
    assert read(alice, session)["messages"][-1]["finish_reason"] == "interrupted"


def test_a_finished_run_cannot_be_cancelled(alice: Person, chat: Any, session: Any) -> None:
    run_id = ask(alice, chat, "hello", session)["run_id"]
    before = alice.ok("GET", f"/runs/{run_id}"), read(alice, session)
    for where in (f"/runs/{run_id}/cancel", in_session(session, run_id) + "/cancel"):
        response = alice("POST", where)
        assert (response.status_code, response.get_json()["code"]) == (409, 409)
    assert (alice.ok("GET", f"/runs/{run_id}"), read(alice, session)) == before


def test_a_stopped_run_cannot_be_stopped_again(alice: Person, running: Any) -> None:
    alice.ok("POST", f"/runs/{running['id']}/cancel")
    until(lambda: alice.ok("GET", f"/runs/{running['id']}")["status"] == "interrupted")
    assert alice("POST", f"/runs/{running['id']}/cancel").status_code == 409


def test_cancelling_a_waiting_question_leaves_nothing_of_it(
    alice: Person, chat: Any, session: Any, running: Any, gate: Gate
) -> None:
    waiting = later(lambda: twin(alice)("POST", path(chat), body("next", session)))
    [queued] = until(lambda: runs(alice, session, "queued"))
    alice.ok("POST", f"/runs/{queued['id']}/cancel")
    assert waiting.result(10).status_code == 409
    gate.opened.set()
    until(lambda: runs(alice, session, "complete"))
    assert spoken(alice, session)[1:] == [("user", "slow?"), ("assistant", "halfdone")]
    assert alice("GET", f"/runs/{queued['id']}").status_code == 404


def test_deleting_the_session_takes_its_runs_along(alice: Person, chat: Any, session: Any) -> None:
    run_id = ask(alice, chat, "hello", session)["run_id"]
    alice.ok("DELETE", f"/chats/{chat['id']}/sessions", {"ids": [session["id"]]})
    assert alice("GET", f"/runs/{run_id}").status_code == 404
