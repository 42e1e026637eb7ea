"""What a client of the completion routes does: asks, reads frames, leaves, comes back."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from tests.conftest import Person


def ask(person: Person, chat: Any, question: str, session: Any = None, **more: Any) -> Any:
    """The data of a plain answer that must be a success."""
    return person.ok("POST", path(chat), body(question, session) | {"stream": False} | more)


def stream(person: Person, chat: Any, question: str, session: Any = None, **more: Any) -> list[Any]:
    """The `data` of every frame of a streamed answer, the terminator's `True` too."""
    response = person("POST", path(chat), body(question, session) | more)
    assert response.mimetype == "text/event-stream", response.get_json()
    return [frame["data"] for frame in frames(response.get_data(as_text=True))]


def path(chat: Any) -> str:
    return f"/chats/{chat['id']}/completions"


def body(question: str, session: Any = None, **message: Any) -> dict[str, Any]:
    named = {"session_id": session["id"]} if session else {}
    return {"messages": [{"role": "user", "content": question} | message]} | named


def frames(text: str) -> list[Any]:
    """The events of a stream as its readers see them: `data:` and JSON, comment lines left out."""
    lines = [line for line in text.splitlines() if line and not line.startswith((":", "id: "))]
    assert all(line.startswith("data:{") for line in lines), lines
    return [json.loads(line.removeprefix("data:")) for line in lines]


def text_of(streamed: list[Any]) -> str:
    """The answer that a client joins from the deltas."""
    return "".join(data["answer"] for data in streamed if data is not True)


def final_of(streamed: list[Any]) -> Any:
    """The one last frame; the terminator follows it."""
    [final] = [data for data in streamed if data is not True and data["final"]]
    assert streamed[-2:] == [final, True]
    return final


def read(person: Person, session: Any) -> Any:
    """The session as it is stored."""
    return person.ok("GET", f"/chats/{session['chat_id']}/sessions/{session['id']}")


def spoken(person: Person, session: Any) -> list[tuple[str, str]]:
    """Who said what in a session, the prologue too."""
    return [(entry["role"], entry["content"]) for entry in read(person, session)["messages"]]


def cited(stored: Any) -> dict[str, list[str]]:
    """The ids of the passages under each answer of a session, by the answer's text."""
    slots = {slot["message_id"]: [chunk["id"] for chunk in slot["chunks"]] for slot in stored["reference"]}
    answers = [entry for entry in stored["messages"] if entry["role"] == "assistant" and "id" in entry]
    assert [entry["id"] for entry in answers] == list(slots)
    return {entry["content"]: slots[entry["id"]] for entry in answers}


def runs(person: Person, session: Any, status: str = "") -> list[Any]:
    where = f"/chats/{session['chat_id']}/sessions/{session['id']}/runs"
    found: list[Any] = person.ok("GET", f"{where}?status={status}")
    return found


def twin(person: Person) -> Person:
    """The same person with another client, for another thread."""
    return replace(person, client=person.client.application.test_client())


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """The results of these calls, begun at the same moment; an exception is raised here."""
    barrier = threading.Barrier(len(calls))

    def begin(call: Callable[[], Any]) -> Any:
        barrier.wait(10)
        return call()

    futures = [later(lambda call=call: begin(call)) for call in calls]  # type: ignore[misc]
    return [future.result(60) for future in futures]


def later(call: Callable[[], Any]) -> "Future[Any]":
    """The call, begun in a thread of its own."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is read
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until(true: Callable[[], Any], seconds: float = 10) -> Any:
    """What `true` gives as soon as it isn't false; an AssertionError after the deadline."""
    for _ in ticks(seconds):
        found = true()
        if found:
            return found
    raise AssertionError(f"not within {seconds} seconds")


def ticks(seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.01)
