"""PostgreSQL's pool: no dead connection is handed out, and one that was used a moment ago isn't asked."""

import fcntl
import socket
import time

import pytest
from peewee import DataError

from conf.settings import Settings
from db.database import connection, database, fetch
from db.postgres import has_input
from tests.db.conftest import execute
from tests.statements import listening

OTHERS = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() " \
         "AND backend_type = 'client backend'"


@pytest.fixture(autouse=True)
def of_postgres(engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("a file has no connection to lose")


def used() -> int:
    """A connection's use; which one it was, by its server's process."""
    with connection():
        return fetch("SELECT pg_backend_pid()")[0][0]


@pytest.mark.parametrize("idle", [0.0, 1.2])
def test_a_connection_that_the_server_closed_is_not_handed_out(store: Settings, idle: float) -> None:
    before = used()
    time.sleep(idle)
    execute(store.database.url, OTHERS)
    assert used() != before


def test_a_connection_is_asked_whether_it_lives_when_it_was_idle_only(store: Settings) -> None:
    first = used()
    with listening() as heard:
        assert [used() for _ in range(5)] == [first] * 5
    assert heard.pings == 0
    time.sleep(1.1)
    with listening() as heard:
        assert [used() for _ in range(5)] == [first] * 5
    assert heard.pings == 1


def test_input_is_seen_on_a_file_beyond_the_first_thousand(store: Settings) -> None:
    here, there = socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(here.fileno(), fcntl.F_DUPFD, 1_100))
    assert not has_input(high)
    there.close()
    assert has_input(high)
    here.close()
    high.close()
    assert database.obj.is_closed()


def test_what_exceeds_a_limit_of_postgres_is_no_passing_trouble(store: Settings) -> None:
    words = " ".join(str(n) for n in range(150_000))
    with connection(), pytest.raises(DataError, match="too long for tsvector"):
        fetch("SELECT to_tsvector('simple', %s)", [words])
    with connection():
        assert fetch("SELECT 1") == [(1,)]
