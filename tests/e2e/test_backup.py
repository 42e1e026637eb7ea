"""A backup is made of a server that answers all the time: every turn that was acknowledged before it is in the copy."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.databases import PROGRAMS, another_database
from tests.e2e.asking import asking
from tests.processes import ServerProcess, wait_until

ASKERS = 4


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
    with asking(api, headers, chat["id"], ASKERS) as askers:
        wait_until(lambda: all(len(asker.acknowledged) >= 3 for asker in askers), 60)
        before = {asker.session_id: list(asker.acknowledged) for asker in askers}
        server.run("backup", str(tmp_path / "b.backup"))
        after = sum(len(asker.acknowledged) for asker in askers)
    assert after > sum(map(len, before.values())), "nobody was answered while the backup was made"

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
