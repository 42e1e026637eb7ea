"""The copy of a SQLite database is that of one moment, comes to its end under any load, and holds nobody up."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from conf.settings import load_settings
from db.backup_sqlite import copy_out
from db.database import database, open_database
from db.migrate import migrate

PAIRS = 3_000


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A database of ours with some megabytes in it."""
    settings = load_settings(database={"url": f"sqlite:///{tmp_path / 'live.db'}"})
    open_database(settings)
    migrate(settings)
    with closing(sqlite3.connect(tmp_path / "live.db")) as opened:
        opened.execute("CREATE TABLE pair (id integer, half text, filling text)")
        opened.executemany("INSERT INTO pair VALUES (?, ?, ?)", [
            (number, half, "x" * 1_000) for number in range(PAIRS) for half in ("left", "right")
        ])
        opened.commit()
    yield tmp_path / "live.db"
    database.obj.close_all()


@contextmanager
def writing(path: Path) -> Iterator[list[float]]:
    """A process's thread that commits pairs all the time; the seconds that each of its commits took."""
    took: list[float] = []
    stopped = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as opened:
            while not stopped.wait(0.002):
                began = time.monotonic()
                opened.execute("BEGIN IMMEDIATE")
                opened.execute("INSERT INTO pair VALUES (?, 'left', 'new')", [PAIRS + len(took)])
                opened.execute("INSERT INTO pair VALUES (?, 'right', 'new')", [PAIRS + len(took)])
                opened.execute("COMMIT")
                took.append(time.monotonic() - began)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield took
    finally:
        stopped.set()
        thread.join()


def test_the_copy_is_of_one_moment_and_comes_to_its_end_while_others_write(path: Path, tmp_path: Path) -> None:
    steps: list[int] = []

    def told(done: int, total: int | None) -> None:
        steps.append(done)
        time.sleep(0.01)  # time for commits between two steps
        assert len(steps) < 500, "the copy begins anew with every commit"

    (tmp_path / "copy.db").touch()
    with writing(path) as took:
        while len(took) < 5:
            time.sleep(0.01)
        before = len(took)
        copy_out(path, tmp_path / "copy.db", told, pages=50)
        during = took[before:]
    assert steps == sorted(steps) and len(steps) > 20
    assert len(during) > 20, "others wrote meanwhile"
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        [(pairs, halves)] = copy.execute("SELECT count(DISTINCT id), count(*) FROM pair")
    assert halves == 2 * pairs, "half of a commit"
    assert PAIRS + before <= pairs < PAIRS + len(took)
    assert {file.name for file in tmp_path.iterdir()} >= {"copy.db"}
    assert not list(tmp_path.glob("copy.db-*"))
