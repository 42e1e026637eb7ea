"""SQLite: its pool, its pragmas, and how its write lock is waited for."""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from playhouse.pool import PooledSqliteDatabase

from db.pool import Dialect, WaitingPool

_SCHEME = "sqlite:///"
SQLITE = Dialect("sqlite", "((julianday('now') - 2440587.5) * 86400.0)", "", "", "instr", "json_each(%s)", "blob")
PRAGMAS = {
    "journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 50,
    "synchronous": "full", "journal_size_limit": 64 * 1024 * 1024,
}
_LOCKED = 30.0  # seconds to wait for SQLite's write lock
_NAMELESS = ("", ":memory:")
_creating = threading.Lock()


class PatientCursor(sqlite3.Cursor):
    """Waits for SQLite's write lock in short tries.

    While SQLite waits by itself it holds its connection's mutex. Whoever holds the write lock may collect garbage
    just then, a cursor of that connection among it, and closing that cursor needs the mutex: both would wait.
    """

    def execute(self, *statement: Any) -> "PatientCursor":
        until = time.monotonic() + _LOCKED
        while True:
            try:
                return super().execute(*statement)
            except sqlite3.OperationalError as error:
                is_waiting = "database is locked" in str(error) and not self.connection.in_transaction
                if not is_waiting or time.monotonic() > until:
                    raise


class PatientConnection(sqlite3.Connection):
    def __init__(self, path: str, *how: Any, **named: Any) -> None:
        if path not in _NAMELESS:
            ensure_private(path)
        super().__init__(path, *how, **named)

    def cursor(self, factory: Any = PatientCursor) -> Any:
        return super().cursor(factory)


class SqlitePool(WaitingPool, PooledSqliteDatabase):  # type: ignore[misc]
    """SQLite's pool: opening a file anew for each request costs more than the request."""

    dialect = SQLITE

    @property
    def place(self) -> str:
        """Where the database is, for an operator."""
        return os.path.abspath(str(self.database))

    def _connect(self) -> Any:
        """SQLite's own messages don't say which file they are about."""
        try:
            return super()._connect()
        except sqlite3.DatabaseError as error:
            raise type(error)(f"{self.place}: {error}; database.url names it") from error

    def _set_pragmas(self, conn: Any) -> None:
        """SQLite doesn't wait for the lock that a change to WAL needs: many first starts at once collide."""
        for _ in range(200):
            try:
                super()._set_pragmas(conn)  # type: ignore[misc]
            except sqlite3.OperationalError:
                time.sleep(0.05)
            else:
                return
        super()._set_pragmas(conn)  # type: ignore[misc]


def ensure_private(path: str | Path) -> None:
    """Make the file, which nobody else may read, if it isn't there; SQLite gives its logs the same mode.

    A file that is there is never opened, and no other thread opens one that this makes: closing it would take away
    the locks that the process has on it. What can't be made SQLite complains about itself.
    """
    with _creating, suppress(OSError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def sqlite_path(url: str) -> Path | None:
    """The file that a URL names; None where it is another engine's, or names memory."""
    path = url.removeprefix(_SCHEME)
    return Path(path) if url.startswith(_SCHEME) and path != ":memory:" else None


def open_sqlite(url: str, **pool: Any) -> SqlitePool:
    """The pool of a URL's file, whose folder is made. Raises ValueError for a folder, and where SQLite is too old."""
    path = url.removeprefix(_SCHEME)
    if sqlite3.sqlite_version_info < (3, 35):
        raise ValueError(f"SQLite 3.35 or newer is needed, this Python has {sqlite3.sqlite_version}")
    if path and Path(path).is_dir():
        raise ValueError(f"database.url names {path}, a folder; it must name a file, as sqlite:///var/chatkeep.db does")
    if path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    opened = SqlitePool(
        path, pragmas=PRAGMAS, lock_type="IMMEDIATE", check_same_thread=False, factory=PatientConnection, **pool
    )
    opened.register_function(_lower, "lower", 1, True)  # SQLite's own knows 26 letters
    return opened


def _lower(text: str | None) -> str | None:
    return text.lower() if isinstance(text, str) else text
