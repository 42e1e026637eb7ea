"""How long it takes with the settings that a server has by itself: after a kill, after a restart, to stop."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.faults.load import Load, Told
from tests.faults.world import World

DEFAULTS = {"CHATKEEP_RUNS_LEASE": "15", "CHATKEEP_RUNS_RENEW": "5", "CHATKEEP_RUNS_POLL": "0.5",
            "CHATKEEP_RUNS_QUEUE_TIMEOUT": "30"}


@pytest.fixture
def world(url: str, tmp_path: Path) -> Iterator[World]:
    """Two replicas with the default times, and a model that says five words a second."""
    world = World(tmp_path, url, pause=0.2, **DEFAULTS)
    yield world.start()
    world.stop()


@pytest.fixture
def load(world: World) -> Load:
    load = Load(world.bases, world.replicas[0].token(), "")
    load.chat_id = load.call("POST", "/api/v1/chats", json={"name": "times"})["id"]
    return load


def begin(world: World, load: Load) -> tuple[str, str, Iterator[bytes]]:
    """A session whose answer has begun on the first replica, the run, and the rest of its stream."""
    session = load.new_session()
    body = {"session_id": session, "question": "say a in 200 words"}
    stream = requests.post(f"{world.replicas[0].base}/api/v1/chats/{load.chat_id}/completions", json=body,
                           headers=load.headers, stream=True, timeout=20)
    lines = stream.iter_lines(chunk_size=1)
    assert any(b"a.1 " in line for line in lines)
    return session, stream.headers["X-Chatkeep-Run"], lines


def seconds_to_the_next_answer(load: Load, session: str) -> float:
    asked = time.monotonic()
    turn = Told("say b in 1 words", session)
    load.ask(turn, 40)
    assert (turn.finish, turn.seen) == ("stop", "b.0 "), turn
    return time.monotonic() - asked


def test_another_machine_takes_the_session_over_when_the_lease_is_out(world: World, load: Load) -> None:
    session, _, _ = begin(world, load)
    world.replicas[0].kill()
    assert seconds_to_the_next_answer(load, session) < 16, "a lease of 15 s, and a look every half second"
    stored: Any = load.call("GET", f"/api/v1/chats/{load.chat_id}/sessions/{session}")["messages"]
    [lost] = [entry for entry in stored if entry.get("finish_reason") == "interrupted"]
    assert lost["content"].startswith("a.0 a.1 "), "what its reader saw"


def test_the_same_machine_has_it_at_once_when_it_is_back(world: World, load: Load) -> None:
    session, _, _ = begin(world, load)
    world.replicas[0].kill()
    world.replicas[0].start()
    assert seconds_to_the_next_answer(load, session) < 2


def test_a_stop_on_the_other_replica_takes_less_than_two_seconds(world: World, load: Load) -> None:
    _, run, lines = begin(world, load)
    asked = time.monotonic()
    requests.post(f"{world.replicas[1].base}/api/v1/runs/{run}/cancel", headers=load.headers, timeout=10)
    assert any(b'"finish_reason":"interrupted"' in line for line in lines)
    assert time.monotonic() - asked < 2
