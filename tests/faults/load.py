"""Clients that ask and never give up: what they were promised, what they saw, what they were told at the end."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from db.ids import new_id
from tests.faults.model import words_of

REFUSALS = {409, 503}  # "try again", which a client does under the same message id


@dataclass
class Told:
    """One turn as its client knows it."""

    question: str
    session: str
    id: str = field(default_factory=new_id)
    run_id: str = ""
    accepted: bool = False  # the response's head came: the question is the server's from then on
    seen: str = ""
    last: int = 0  # the number of the last event
    repeated: int = 0
    finish: str | None = None
    dropped: bool = False  # its session was deleted
    odd: list[str] = field(default_factory=list)

    @property
    def whole(self) -> str:
        return "".join(words_of(self.question))


class Load:
    """Many clients on some sessions, each asking one turn after the other until `enough` says so."""

    def __init__(self, bases: Callable[[], list[str]], token: str, chat_id: str, *, seed: int = 1) -> None:
        self.bases, self.chat_id = bases, chat_id
        self.headers = {"Authorization": f"Bearer {token}"}
        self.patience = 90.0  # seconds that a client tries to get one turn to its end
        self.turns: list[Told] = []
        self.deleted: set[str] = set()
        self.random = random.Random(seed)
        self._lock = threading.Lock()

    # -- what a client does -------------------------------------------------------------------------

    def run(self, clients: int, sessions: list[str], words: int, enough: Callable[[], bool]) -> None:
        """Ask until `enough`; each client on a session of its own, the last two share one."""
        threads = [
            threading.Thread(target=self._client, args=(sessions[n % len(sessions)], words, enough), daemon=True)
            for n in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, session: str, words: int, enough: Callable[[], bool]) -> None:
        while not enough():
            if session in self.deleted:
                session = self.new_session()
            turn = Told(f"say {new_id()[-8:]} in {self.random.randint(1, words)} words", session)
            with self._lock:
                self.turns.append(turn)
            self.ask(turn)

    def ask(self, turn: Told, patience: float | None = None) -> None:
        """Put the question until it is accepted, then read until its end, wherever it goes on."""
        deadline = time.monotonic() + (patience or self.patience)
        while turn.finish is None and not turn.dropped and time.monotonic() < deadline:
            try:
                if turn.accepted:
                    self._resume(turn, deadline)
                else:
                    self._post(turn, deadline)
            except requests.RequestException:
                time.sleep(0.1)

    def _post(self, turn: Told, deadline: float) -> None:
        body = {"session_id": turn.session, "messages": [{"role": "user", "content": turn.question, "id": turn.id}]}
        path = f"/api/v1/chats/{self.chat_id}/completions"
        with self._send("POST", path, json=body) as response:
            if response.headers.get("Content-Type", "").startswith("text/event-stream"):
                turn.accepted = True
                turn.run_id = response.headers["X-Chatkeep-Run"]
                self._read(turn, response, deadline)
            else:
                self._refused(turn, response)

    def _resume(self, turn: Told, deadline: float) -> None:
        headers = {"Last-Event-ID": f"{turn.run_id}:{turn.last}"} if turn.last else {}
        with self._send("GET", f"/api/v1/runs/{turn.run_id}/events", headers=headers) as response:
            if response.headers.get("Content-Type", "").startswith("text/event-stream"):
                self._read(turn, response, deadline)
            else:
                self._refused(turn, response)

    def _send(self, method: str, path: str, **more: Any) -> requests.Response:
        base = self.random.choice(self.bases())
        headers = self.headers | more.pop("headers", {})
        return requests.request(method, base + path, headers=headers, stream=True, timeout=(2, 40), **more)

    def _refused(self, turn: Told, response: requests.Response) -> None:
        answered = response.json()
        if turn.session in self.deleted:
            turn.dropped = True
        elif response.status_code not in REFUSALS:
            turn.odd.append(f"{response.status_code} {answered}")
        time.sleep(0.1)

    def _read(self, turn: Told, response: requests.Response, deadline: float) -> None:
        """Add up what comes; now and then the client loses its connection or presses stop."""
        cut = self.random.random() < 0.1
        for n, frame in _frames(response, deadline):
            data = frame["data"]
            if data is True:
                continue
            if n <= turn.last:
                turn.repeated += 1
            turn.last = max(turn.last, n)
            if data.get("final"):
                turn.finish = data["finish_reason"]
                turn.dropped = turn.session in self.deleted
                return
            turn.seen += data["answer"]
            if cut and self.random.random() < 0.1:
                return  # the connection is closed; the next try comes back
            if self.random.random() < 0.002:
                self.cancel(turn)

    def cancel(self, turn: Told) -> None:
        with contextlib.suppress(requests.RequestException):
            self._send("POST", f"/api/v1/runs/{turn.run_id}/cancel").close()

    # -- sessions -------------------------------------------------------------------------------------

    def new_session(self) -> str:
        return str(self.call("POST", f"/api/v1/chats/{self.chat_id}/sessions", json={"name": "load"})["id"])

    def delete_session(self, session: str) -> None:
        self.deleted.add(session)
        self.call("DELETE", f"/api/v1/chats/{self.chat_id}/sessions", json={"ids": [session]})

    def call(self, method: str, path: str, **more: Any) -> Any:
        """The data of a call that is tried until a server answers it."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            with contextlib.suppress(requests.RequestException):
                answered = self._send(method, path, **more).json()
                if answered["code"] not in REFUSALS:
                    return answered["data"]
            time.sleep(0.1)
        raise AssertionError(f"no server answered {method} {path}")


def _frames(response: requests.Response, deadline: float) -> Iterator[tuple[int, Any]]:
    """The number and JSON of each event, until the deadline."""
    n = 0
    for line in response.iter_lines(chunk_size=1):
        if time.monotonic() > deadline:
            return
        if line.startswith(b"id: "):
            n = int(line.rpartition(b":")[2])
        elif line.startswith(b"data:"):
            yield n, json.loads(line[5:])
