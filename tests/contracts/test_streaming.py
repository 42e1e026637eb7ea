"""Streams over a real socket: readers come and go, many ask at once; no turn is lost or cut in two."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from services.events import TextDelta
from tests.conftest import Person
from tests.contracts.wire import (
    ask,
    at_once,
    body,
    cited,
    frames,
    later,
    path,
    read,
    runs,
    spoken,
    text_of,
    twin,
    until,
)
from tests.fakes import Gate, ScriptedModel, says

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def gate(model: ScriptedModel) -> Iterator[Gate]:
    """The answer to "slow?": three words, then it waits, then two more."""
    gate = Gate("one ", "two ", "three ", after=("four ", "five"), chunks=("a",))
    model.script("slow?", gate)
    yield gate
    gate.opened.set()


class Reader:
    """A client that reads a stream line by line and may leave."""

    def __init__(self, address: tuple[str, int], person: Person, chat: Any, request: dict[str, Any]) -> None:
        raw = json.dumps(request).encode()
        self.socket = socket.create_connection(address, timeout=20)
        self.socket.sendall(
            f"POST /api/v1{path(chat)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {person.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw
        )
        self.response = http.client.HTTPResponse(self.socket)

    def open(self) -> "Reader":
        self.response.begin()
        return self

    def frame(self) -> Any:
        """The data of the next frame."""
        while not (line := self.response.readline()).startswith(b"data:"):
            assert line, "the stream is over"
        return json.loads(line.removeprefix(b"data:"))["data"]

    def rest(self) -> str:
        text = self.response.read().decode()
        self.leave()
        return text

    def leave(self) -> None:
        self.response.close()
        self.socket.close()


def post(address: tuple[str, int], person: Person, where: str, request: Any) -> tuple[int, Any]:
    """Status and body of one plain call on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/json"}
    connection.request("POST", f"/api/v1{where}", json.dumps(request), headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def assert_whole(person: Person, session: Any) -> None:
    run = until(lambda: (found := runs(person, session)) and found[0]["status"] != "active" and found[0])
    assert (run["status"], run["outcome"], run["finish_reason"]) == ("complete", "success", "stop")
    assert spoken(person, session)[1:] == [("user", "slow?"), ("assistant", "one two three four five")]
    assert cited(read(person, session)) == {"one two three four five": ["a"]}


def test_deltas_arrive_as_they_are_said(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    reader = Reader(address, alice, chat, body("slow?", session)).open()
    assert [reader.frame()["answer"] for _ in range(3)] == ["one ", "two ", "three "]
    assert not gate.opened.is_set()
    gate.opened.set()
    assert text_of([frame["data"] for frame in frames(reader.rest())]) == "four five"


def test_the_headers_arrive_before_the_models_first_word(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    gate = Gate()
    model.script("hello", gate)
    reader = Reader(address, alice, chat, body("hello", session)).open()
    assert reader.response.headers["X-Chatkeep-Run"] == runs(alice, session)[0]["id"]
    assert spoken(alice, session)[-1] == ("user", "hello")
    gate.opened.set()
    assert text_of([frame["data"] for frame in frames(reader.rest())]) == "done"


def test_a_reader_that_leaves_after_three_frames_changes_nothing(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    reader = Reader(address, alice, chat, body("slow?", session)).open()
    assert [reader.frame()["answer"] for _ in range(3)] == ["one ", "two ", "three "]
    reader.leave()
    gate.opened.set()
    assert_whole(alice, session)


def test_a_reader_that_leaves_before_the_first_frame_changes_nothing(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    Reader(address, alice, chat, body("slow?", session)).leave()
    assert gate.reached.wait(10)
    gate.opened.set()
    assert_whole(alice, session)


def test_a_plain_caller_that_leaves_changes_nothing(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    reader = Reader(address, alice, chat, body("slow?", session) | {"stream": False})
    assert gate.reached.wait(10)
    reader.leave()
    gate.opened.set()
    assert_whole(alice, session)


def test_a_caller_that_leaves_while_its_question_waits_changes_nothing(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    first = Reader(address, alice, chat, body("slow?", session)).open()
    waiting = Reader(address, alice, chat, body("next", session))
    until(lambda: runs(alice, session, "queued"))
    waiting.leave()
    gate.opened.set()
    first.rest()
    until(lambda: len(runs(alice, session, "complete")) == 2)
    assert spoken(alice, session)[3:] == [("user", "next"), ("assistant", "You said: next")]


def test_after_a_reader_left_the_next_question_works(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    reader = Reader(address, alice, chat, body("slow?", session)).open()
    reader.frame()
    reader.leave()
    gate.opened.set()
    assert post(address, alice, path(chat), body("next", session) | {"stream": False})[1]["data"]["answer"] \
        == "You said: next"
    assert [text for _, text in spoken(alice, session)][1:] == [
        "slow?", "one two three four five", "next", "You said: next",
    ]


def test_who_comes_back_with_the_same_message_gets_the_answer_from_its_start(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    request = body("slow?", session, id="m1")
    first = Reader(address, alice, chat, request).open()
    first.frame()
    first.leave()
    again = Reader(address, alice, chat, request).open()
    assert [again.frame()["answer"] for _ in range(3)] == ["one ", "two ", "three "]
    gate.opened.set()
    assert text_of([frame["data"] for frame in frames(again.rest())]) == "four five"
    assert_whole(alice, session)


def test_two_readers_get_every_frame_and_one_that_leaves_does_not_disturb_the_other(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    request = body("slow?", session, id="m1")
    readers = [Reader(address, alice, chat, request).open() for _ in range(3)]
    for reader in readers:
        assert [reader.frame()["answer"] for _ in range(3)] == ["one ", "two ", "three "]
    readers.pop().leave()
    gate.opened.set()
    rests = [[frame["data"] for frame in frames(reader.rest())] for reader in readers]
    assert [text_of(rest) for rest in rests] == ["four five"] * 2
    assert all(rest[-1] is True and rest[-2]["final"] for rest in rests)
    assert_whole(alice, session)


@pytest.mark.settings(stream={"keep_alive": 0.05})
def test_silence_is_filled_with_comment_lines_and_no_empty_events(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    reader = Reader(address, alice, chat, body("slow?", session)).open()
    for _ in range(3):
        reader.frame()
    assert reader.response.readline() == b"\n"
    assert [reader.response.readline() for _ in range(3)] == [b": keep-alive\n"] * 3
    gate.opened.set()
    rest = reader.rest()
    assert ": keep-alive\n\n" not in rest
    assert text_of([frame["data"] for frame in frames(rest)]) == "four five"


def test_twenty_questions_at_once_are_each_answered_whole_or_refused(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    for number in range(20):
        model.script(f"q{number}", lambda number=number: says(*f"a {number} !".split(), chunks=(f"c{number}",)))
    answers = at_once(*(
        lambda number=number: (number, *post(  # type: ignore[misc]
            address, alice, path(chat), body(f"q{number}", session) | {"stream": False}
        )) for number in range(20)
    ))
    assert {answer["code"] for _, _, answer in answers} <= {0, 409}
    answered = {f"q{number}": answer["data"]["answer"] for number, _, answer in answers if answer["code"] == 0}
    said = spoken(alice, session)[1:]
    assert {text for role, text in said if role == "user"} == answered.keys()
    assert [role for role, _ in said] == ["user", "assistant"] * len(answered)
    for (_, question), (_, answer) in zip(said[::2], said[1::2], strict=True):
        assert answer == answered[question] == f"a{question[1:]}!"
    assert cited(read(alice, session)) == {f"a{question[1:]}!": [f"c{question[1:]}"] for question in answered}


def test_waiting_questions_are_answered_in_order_of_arrival(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    first = Reader(address, alice, chat, body("slow?", session)).open()
    first.frame()
    waiting = []
    for number in range(6):
        request = body(f"q{number}", session) | {"stream": number % 2 == 0}
        waiting.append(Reader(address, alice, chat, request))
        until(lambda number=number: len(runs(alice, session, "queued")) == number + 1)  # type: ignore[misc]
    gate.opened.set()
    first.rest()
    for number, reader in enumerate(waiting):
        assert f"q{number}" in reader.open().rest()
    assert [text for role, text in spoken(alice, session) if role == "user"] == [
        "slow?", *(f"q{number}" for number in range(6)),
    ]


def test_twenty_at_once_that_will_not_wait_leave_nothing_where_they_are_refused(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    first = Reader(address, alice, chat, body("slow?", session)).open()
    first.frame()
    request = {"stream": False, "on_conflict": "reject"}
    answers = at_once(*(
        lambda number=number: post(address, alice, path(chat), body(f"q{number}", session) | request)  # type: ignore[misc]
        for number in range(20)
    ))
    assert {(status, answer["code"]) for status, answer in answers} == {(409, 409)}
    gate.opened.set()
    first.rest()
    assert_whole(alice, session)
    assert len(runs(alice, session)) == 1


def test_a_question_that_interrupts_while_others_wait_leaves_whole_turns(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, gate: Gate
) -> None:
    first = Reader(address, alice, chat, body("slow?", session)).open()
    first.frame()
    waiting = later(lambda: post(address, alice, path(chat), body("next", session) | {"stream": False}))
    until(lambda: runs(alice, session, "queued"))
    assert ask(twin(alice), chat, "now", session, on_conflict="interrupt")["answer"] == "You said: now"
    _, answer = waiting.result(30)
    first.rest()
    assert answer["code"] in (0, 409)
    kept = ["next"] if answer["code"] == 0 else []
    said = spoken(alice, session)[1:]
    assert [text for role, text in said if role == "user"] == ["slow?", *kept, "now"]
    assert [role for role, _ in said] == ["user", "assistant"] * (2 + len(kept))


def test_sessions_of_one_chat_stream_side_by_side(
    address: tuple[str, int], alice: Person, chat: Any, model: ScriptedModel
) -> None:
    gates = {f"q{number}": Gate(f"half {number} ", after=(f"done {number}",)) for number in range(8)}
    for question, gate in gates.items():
        model.script(question, gate)
    readers = {question: Reader(address, alice, chat, body(question)).open() for question in gates}
    opened = {question: reader.frame() for question, reader in readers.items()}
    assert len({data["session_id"] for data in opened.values()}) == 8
    for gate in gates.values():
        gate.opened.set()
    for question, reader in readers.items():
        rest = [frame["data"] for frame in frames(reader.rest())]
        assert text_of(rest) == f"done {question[1:]}"
        assert {data["session_id"] for data in rest if data is not True} == {opened[question]["session_id"]}


def test_a_long_answer_reaches_its_reader_whole_and_in_order(
    address: tuple[str, int], alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    model.script("hello", lambda: (TextDelta(f"{number} ") for number in range(2_000)))
    reader = Reader(address, alice, chat, body("hello", session)).open()
    whole = "".join(f"{number} " for number in range(2_000))
    assert text_of([frame["data"] for frame in frames(reader.rest())]) == whole
    assert spoken(alice, session)[-1] == ("assistant", whole)


def test_a_server_whose_runs_nobody_keeps_is_not_ready(app: Flask, alice: Person) -> None:
    assert alice.client.get("/readyz").status_code == 200
    app.extensions["chatkeep"].workers._keeper.stop()
    assert alice.client.get("/readyz").status_code == 503
    assert alice.client.get("/healthz").status_code == 200
