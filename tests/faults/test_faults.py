"""Two servers on one database, a load of streams, and whatever can go wrong: nothing is lost, doubled or stuck.

Short here; `make faults` says FAULTS_TURNS=2000 FAULTS_COUNT=200.
"""

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.load import Load
from tests.faults.replicated import Replicated
from tests.faults.verdict import Verdict, judge
from tests.faults.world import Faults, Postgres, World

TURNS = int(os.environ.get("FAULTS_TURNS", "60"))
COUNT = int(os.environ.get("FAULTS_COUNT", "8"))
SEED = int(os.environ.get("FAULTS_SEED", "1"))


@pytest.fixture
def own_postgres(engine: str) -> Iterator[Postgres | None]:
    if engine == "sqlite":
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are swept by later runs of pytest
        postgres = Postgres(Path(folder))
        yield postgres
        postgres.server.cleanup()


@pytest.fixture
def database_url(own_postgres: Postgres | None, tmp_path: Path) -> str:
    return own_postgres.server.get_uri() if own_postgres else f"sqlite:///{tmp_path / 'chatkeep.db'}"


def suffer(
    world: World, postgres: Postgres | None, turns: int, count: int, only: Sequence[str] = (),
    patience: float = 90.0,
) -> Verdict:
    """So many turns and faults at least, and what became of them."""
    world.start()
    token = world.replicas[0].token()
    load = Load(world.bases, token, "", seed=SEED)
    load.patience = patience
    load.chat_id = load.call("POST", "/api/v1/chats", json={"name": "load"})["id"]
    sessions = [load.new_session() for _ in range(12)]
    faults = Faults(world, load, postgres, SEED, only)
    hurting = threading.Thread(target=faults.run, args=(count, 1.5), daemon=True)
    hurting.start()
    load.run(14, sessions, 60, lambda: len(load.turns) >= turns and not hurting.is_alive())
    hurting.join()
    assert faults.failed is None, faults.failed
    return judge(world, load, faults.done)


@pytest.mark.timeout(3600)
def test_whatever_goes_wrong_nothing_is_lost_doubled_or_stuck(
    own_postgres: Postgres | None, database_url: str, tmp_path: Path, capsys: Any
) -> None:
    world = World(tmp_path, database_url)
    try:
        verdict = suffer(world, own_postgres, TURNS, COUNT)
    finally:
        world.stop()
    with capsys.disabled():
        print(f"\n{verdict}")
    assert verdict.is_clean, verdict


@pytest.mark.timeout(600)
def test_a_standby_that_takes_over_in_the_middle_has_it_all(tmp_path: Path, capsys: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        postgres = Replicated(Path(folder))
        world = World(tmp_path, postgres.url)
        try:
            verdict = suffer(world, postgres, 60, 3, ["kill_server", "fail_over", "pause_server"])
        finally:
            world.stop()
            postgres.stop()
    with capsys.disabled():
        print(f"\nfail-over: {verdict}")
    assert verdict.is_clean, verdict


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mutant", "fault", "found"), [
    ("question_after_model", "kill_server", "lost"), ("lease_ignored", "kill_server", "stuck"),
    ("fence_off", "pause_server", "doubled"), ("journal_off", "kill_server", "missing"),
])
def test_a_server_that_breaks_a_rule_is_found(tmp_path: Path, capsys: Any, mutant: str, fault: str, found: str) -> None:
    world = World(tmp_path, f"sqlite:///{tmp_path / 'chatkeep.db'}", mutant)
    try:
        verdict = suffer(world, None, 20, 3, [fault], patience=8)
    finally:
        world.stop()
    with capsys.disabled():
        print(f"\n{mutant}: {verdict}")
    assert getattr(verdict, found), verdict
