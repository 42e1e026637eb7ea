"""A SQLite database copied page by page while others write to it.

One read transaction stands open from the first page to the last. Without it every commit of another process would
begin the copy anew, so that under load it would never end.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from db.backup import BackupError, Told, check_ours, check_release
from db.sqlite import ensure_private
from db.unreadable import unreadable

PAGES = 1_000  # copied at once: 4 MB


def copy_out(database: Path, file: Path, told: Told, *, pages: int = PAGES) -> None:
    """Write the database as it is now into an empty file: one file, without a log beside it. Raises BackupError."""
    with opened(database, "rw") as live:
        live.execute("BEGIN")
        check_ours(database, _applied(live))
        with opened(file, "rw") as copy:
            copy.execute("PRAGMA synchronous = off")  # whoever gave the file brings it to the disk, once
            _copy(live, copy, pages, told)
            copy.execute("PRAGMA journal_mode = delete")


def copy_in(file: Path, database: Path, told: Told, *, pages: int = PAGES) -> None:
    """Fill an empty database with a backup, whole or not at all. Raises BackupError."""
    ensure_private(database)
    with opened(file, "ro") as kept:
        _check(file, kept)
        with opened(database, "rwc") as fresh:
            _copy(kept, fresh, pages, told)


def check(file: Path) -> None:
    """Raises BackupError where a backup is damaged, isn't ours or is a newer release's."""
    with opened(file, "ro") as kept:
        _check(file, kept)


def applied_in(file: Path) -> list[str]:
    """The migrations that a backup has; none where it isn't ours. Raises BackupError."""
    with opened(file, "ro") as kept:
        return _applied(kept)


def check_empty(database: Path) -> None:
    """Raises BackupError where the file holds anything, or where a log stands beside it that isn't its own."""
    if not database.exists() or not database.stat().st_size:
        for ending in ("-wal", "-journal"):  # SQLite would play it into the restored database
            left = database.with_name(database.name + ending)
            if left.exists() and left.stat().st_size:
                raise BackupError(f"{left} is left of another database or of a killed restore; remove it first")
        return
    with opened(database, "rw") as held:  # what a killed restore wrote is rolled back by this
        if held.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise BackupError(
                f"{database} holds tables already; move it away, or name another file by CHATKEEP_DATABASE_URL"
            )


@contextmanager
def opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection of its own to the file's database, in the mode of SQLite's URIs. Raises BackupError: whatever fails
    within is told as this file's, so open the other one after this was read."""
    address = f"file:{quote(str(file.absolute()))}?mode={mode}"
    try:
        connected = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
        try:
            yield connected
        finally:
            connected.close()
    except sqlite3.Error as error:
        raise BackupError(f"{file}: {error}") from error


def _check(file: Path, kept: sqlite3.Connection) -> None:
    [(verdict,)] = kept.execute("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise BackupError(f"{file} is damaged: {verdict.splitlines()[-1]}")
    check_release(file, _applied(kept))
    for found in unreadable(kept.execute):
        raise BackupError(f"{file} is damaged: {found.table} {found.id}: {found.problem}")


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, pages: int, told: Told) -> None:
    source.backup(target, pages=pages, progress=lambda _, left, total: told(total - left, total))


def _applied(opened: sqlite3.Connection) -> list[str]:
    if opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migration'").fetchone() is None:
        return []
    return [name for (name,) in opened.execute("SELECT name FROM schema_migration")]
