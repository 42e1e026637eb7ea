"""Backups: one file that holds everything, made while the server goes on, and put back into an empty database."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conf.settings import Settings
from db.backup import BackupError, Told, engine_of
from db.backup_postgres import dump
from db.backup_postgres import restore as restore_archive
from db.backup_sqlite import check_empty, copy_in, copy_out
from db.database import change, connection, fetch, open_database
from db.migrate import migrate
from db.sqlite import SQLITE, sqlite_path
from services.principal import Principal
from services.runs.recovery import recover


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back: sessions, answers that had no end and are interrupted now, migrations that were applied."""

    sessions: int
    interrupted: int
    applied: list[str]


def back_up(settings: Settings, target: Path, told: Told, *, force: bool = False, pg_dump: str = "pg_dump") -> int:
    """Write everything that is stored now into one file of mode 0600; its bytes. Raises BackupError."""
    url = settings.migrate_url or settings.database.url  # past a pooler
    database = sqlite_path(url)
    _check_target(target, database, force)
    if database is not None and not database.exists():
        raise BackupError(f"there is no database at {database}")
    if open_database(settings, url).dialect is SQLITE and database is None:
        raise BackupError("a database in memory ends with its process")
    with _taking_the_place_of(target) as file:
        if database is not None:
            copy_out(database, file, told)
        else:
            dump(url, file, pg_dump, told)
    return target.stat().st_size


def restore(settings: Settings, source: Path, told: Told, *, pg_restore: str = "pg_restore") -> Restored:
    """Put a backup into an empty database and bring it up to date. Raises BackupError."""
    url = settings.migrate_url or settings.database.url
    written_by, engine = engine_of(source), open_database(settings, url).dialect.name
    if written_by != engine:
        raise BackupError(f"{source} is a backup of {written_by}, and CHATKEEP_DATABASE_URL names {engine}")
    if engine == SQLITE.name:
        _fill(url, source, told)
    else:
        restore_archive(url, source, pg_restore)
    applied = migrate(settings)
    interrupted = _disown()
    with connection():
        [(sessions,)] = fetch(
            "SELECT (SELECT count(*) FROM {conversation}) + (SELECT count(*) FROM {api_4_conversation})"
        )
    return Restored(sessions, interrupted, applied)


def _check_target(target: Path, database: Path | None, force: bool) -> None:
    if not target.parent.is_dir():
        raise BackupError(f"there is no folder {target.parent}")
    if target.is_dir():
        raise BackupError(f"{target} is a folder; name a file in it")
    if database is not None and str(target.resolve()) in {
        f"{database.resolve()}{ending}" for ending in ("", "-wal", "-shm", "-journal")
    }:
        raise BackupError(f"{target} belongs to the database itself; name another file")
    if target.exists() and not force:
        raise BackupError(f"{target} is there already; --force replaces it")


@contextmanager
def _taking_the_place_of(target: Path) -> Iterator[Path]:
    """A file of mode 0600 beside the target, which takes its place when the block has ended well."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        os.close(handle)
        yield part
        _bring_to_disk(part)
        part.replace(target)
        _bring_to_disk(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _bring_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fill(url: str, source: Path, told: Told) -> None:
    database = sqlite_path(url)
    if database is None:
        raise BackupError("a database in memory ends with its process; name a file by CHATKEEP_DATABASE_URL")
    check_empty(database)
    was_there = database.exists()
    try:
        copy_in(source, database, told)
    except BaseException:
        if not was_there:
            database.unlink(missing_ok=True)
        raise


def _disown() -> int:
    """What was being answered or parsed belongs to a process that knows another database: end it, and begin it anew."""
    with connection():
        change("UPDATE {run} SET lease_until = 0 WHERE status IN ('active', 'queued')")
        change("""UPDATE {dataset_document} SET owner = NULL, lease_until = NULL, attempts = attempts - 1
            WHERE run = 'RUNNING' AND owner IS NOT NULL""")
    return recover(Principal.system())
