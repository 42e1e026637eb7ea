"""How long it takes with the settings that a server has by itself: after a kill, after a restart, to stop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.faults.load import Load, Told
from tests.faults.world import World

DEFAULTS = {"CHATKEEP_RUNS_LEASE": "15", "CHATKEEP_RUNS_RENEW": "5", "CHATKEEP_RUNS_POLL": "0.5",
            "CHATKEEP_RUNS_QUEUE_TIMEOUT": "30", "CHATKEEP_DATABASE_SCHEMA": "times"}


@contextmanager
def serving(folder: Path, url: str) -> Iterator[tuple[World, Load]]:
    """Two replicas with the default times, a model that says five words a second, and a client."""
    world = World(folder, url, pause=0.2, **DEFAULTS)
    try:
        load = Load(world.bases, world.start().replicas[0].token(), "")
        load.chat_id = load.call("POST", "/api/v1/chats", json={"name": "times"})["id"]
        yield world, load
    finally:
        world.stop()


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


def test_another_machine_stops_a_run_and_takes_over_what_a_dead_one_left(tmp_path: Path, postgres: str) -> None:
    with serving(tmp_path, postgres) as (world, load):
        _, run, lines = begin(world, load)
        asked = time.monotonic()
        requests.post(f"{world.replicas[1].base}/api/v1/runs/{run}/cancel", headers=load.headers, timeout=10)
        assert any(b'"finish_reason":"interrupted"' in line for line in lines)
        assert time.monotonic() - asked < 2

        session, _, _ = begin(world, load)
        world.replicas[0].kill()
        assert seconds_to_the_next_answer(load, session) < 16, "a lease of 15 s, and a look every half second"
        stored: Any = load.call("GET", f"/api/v1/chats/{load.chat_id}/sessions/{session}")["messages"]
        [lost] = [entry for entry in stored if entry.get("finish_reason") == "interrupted"]
        assert lost["content"].startswith("a.0 a.1 "), "what its reader saw"


def test_the_same_machine_has_the_session_at_once_when_it_is_back(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path / 'chatkeep.db'}") as (world, load):
        session, _, _ = begin(world, load)
        world.replicas[0].kill()
        world.replicas[0].start()
        assert seconds_to_the_next_answer(load, session) < 2
