"""A backup is made of a server that answers all the time: every turn that was acknowledged before it is in the copy."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.databases import PROGRAMS, another_database
from tests.processes import ServerProcess, wait_until

ASKERS = 4


class Asker(threading.Thread):
    """Asks one question after the other in a session of its own; `acknowledged` are the turns whose end it saw."""

    def __init__(self, api: str, headers: dict[str, str], chat_id: str) -> None:
        super().__init__(daemon=True)
        self.url = f"{api}/chats/{chat_id}/completions"
        made = requests.post(f"{api}/chats/{chat_id}/sessions", json={"name": "s"}, headers=headers, timeout=10).json()
        self.session_id = made["data"]["id"]
        self.headers = headers
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        number = 0
        with requests.Session() as session:
            while not self.stopped.is_set():
                number += 1
                body = {"question": f"What is {number}? " * 20, "session_id": self.session_id, "stream": False}
                answer = session.post(self.url, json=body, headers=self.headers, timeout=30).json()
                if answer["code"] == 0:
                    self.acknowledged.append(answer["data"]["id"])
                else:
                    self.failed.append(answer["message"])


@pytest.fixture
def copy(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A second server on an empty database of the same engine, not started yet."""
    (tmp_path / "copy").mkdir()
    with another_database(engine, request, tmp_path) as url:
        second = ServerProcess(tmp_path / "copy", CHATKEEP_DATABASE_URL=url)
        second.environment["PATH"] = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
        yield second
        second.stop()


def test_a_copy_made_under_load_holds_every_turn_acknowledged_before_it(
    server: ServerProcess, copy: ServerProcess, tmp_path: Path
) -> None:
    server.environment["PATH"] = copy.environment["PATH"]
    headers = {"Authorization": f"Bearer {server.token()}"}
    server.start()
    api = f"{server.base}/api/v1"
    chat = requests.post(f"{api}/chats", json={"name": "c"}, headers=headers, timeout=10).json()["data"]
    askers = [Asker(api, headers, chat["id"]) for _ in range(ASKERS)]
    for asker in askers:
        asker.start()
    wait_until(lambda: all(len(asker.acknowledged) >= 3 for asker in askers), 60)
    before = {asker.session_id: list(asker.acknowledged) for asker in askers}
    server.run("backup", str(tmp_path / "b.backup"))
    after = sum(len(asker.acknowledged) for asker in askers)
    for asker in askers:
        asker.stopped.set()
    for asker in askers:
        asker.join(30)
    assert after > sum(map(len, before.values())), "nobody was answered while the backup was made"
    assert [asker.failed for asker in askers] == [[]] * ASKERS

    restored = json.loads(copy.run("restore", str(tmp_path / "b.backup"), "--json"))
    assert restored["sessions"] == ASKERS
    assert '"findings": []' in copy.run("doctor", "--json")
    copy.start()
    for session_id, turns in before.items():
        stored = requests.get(f"{copy.base}/api/v1/chats/{chat['id']}/sessions/{session_id}", headers=headers,
                              timeout=10).json()["data"]
        answered = [entry["id"] for entry in stored["messages"] if entry["role"] == "assistant" and "id" in entry]
        assert answered[: len(turns)] == turns
        assert [slot["message_id"] for slot in stored["reference"]] == answered
    assert '"findings": []' in server.run("doctor", "--json")
