"""Backups: one file that holds everything, made while the server goes on, and put back into an empty database."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conf.settings import Settings
from db.backup import BackupError, Told, engine_of
from db.backup_move import check_vacant, move
from db.backup_postgres import dump
from db.backup_postgres import restore as restore_archive
from db.backup_sqlite import applied_in, check, check_empty, copy_in, copy_out
from db.database import change, connection, database, fetch, open_database
from db.migrate import known, migrate
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
    live = sqlite_path(url)
    _check_target(target, live, force)
    if live is not None and not live.exists():
        raise BackupError(f"there is no database at {live}")
    if open_database(settings, url).dialect is SQLITE and live is None:
        raise BackupError("a database in memory ends with its process")
    with _taking_the_place_of(target) as file:
        if live is not None:
            copy_out(live, file, told)
        else:
            dump(url, file, pg_dump, told)
    return target.stat().st_size


def restore(settings: Settings, source: Path, told: Told, *, pg_restore: str = "pg_restore") -> Restored:
    """Put a backup into an empty database and bring it up to date. Raises BackupError."""
    url = settings.migrate_url or settings.database.url
    written_by, engine = engine_of(source), open_database(settings, url).dialect.name
    applied: list[str] = []
    if engine == SQLITE.name:
        if written_by != engine:
            raise BackupError(f"{source} is a backup of {written_by}, and CHATKEEP_DATABASE_URL names {engine}")
        _fill(url, source, told)
    elif written_by == SQLITE.name:
        applied = _move(settings, url, source, told)
    else:
        restore_archive(url, source, pg_restore)
    applied += migrate(settings)
    interrupted = _disown()
    with connection():
        [(sessions,)] = fetch(
            "SELECT (SELECT count(*) FROM {conversation}) + (SELECT count(*) FROM {api_4_conversation})"
        )
    return Restored(sessions, interrupted, applied)


def _check_target(target: Path, live: Path | None, force: bool) -> None:
    if not target.parent.is_dir():
        raise BackupError(f"there is no folder {target.parent}")
    if target.is_dir():
        raise BackupError(f"{target} is a folder; name a file in it")
    if live is not None and str(target.resolve()) in {
        f"{live.resolve()}{ending}" for ending in ("", "-wal", "-shm", "-journal")
    }:
        raise BackupError(f"{target} belongs to the database itself; name another file")
    if target.exists() and not force:
        raise BackupError(f"{target} is there already; --force replaces it")


@contextmanager
def _taking_the_place_of(target: Path) -> Iterator[Path]:
    """A file of mode 0600 beside the target, which takes its place when the block has ended well."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")  # known before it is there: a stop finds it
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
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
    empty = sqlite_path(url)
    if empty is None:
        raise BackupError("a database in memory ends with its process; name a file by CHATKEEP_DATABASE_URL")
    check_empty(empty)
    was_there = empty.exists()
    try:
        copy_in(source, empty, told)
    except BaseException:
        if not was_there:
            empty.unlink(missing_ok=True)
        raise


def _move(settings: Settings, url: str, source: Path, told: Told) -> list[str]:
    """Put a backup of SQLite into PostgreSQL; the migrations that it had lacked."""
    with connection():
        check_vacant(settings.database.schema_name)
    with _of_this_release(settings, source, told) as (file, applied):
        migrate(settings)
        database.obj.close_all()
        open_database(settings, url)
        move(file, told)
    return applied


@contextmanager
def _of_this_release(settings: Settings, source: Path, told: Told) -> Iterator[tuple[Path, list[str]]]:
    """A backup of SQLite that was looked through, or its copy with the migrations that it lacked, and their names."""
    if set(applied_in(source)) >= set(known()):
        check(source)
        yield source, []
        return
    with tempfile.TemporaryDirectory(prefix="chatkeep-") as folder:
        copy = Path(folder) / "copy.db"
        copy_in(source, copy, told)
        place = settings.database.model_copy(update={"url": f"sqlite:///{copy}"})
        applied = migrate(settings.model_copy(update={"database": place, "migrate_url": ""}))
        database.obj.close_all()
        yield copy, applied


def _disown() -> int:
    """What was being answered or parsed belongs to a process that knows another database: end it, and begin it anew."""
    with connection():
        change("UPDATE {run} SET lease_until = 0 WHERE status IN ('active', 'queued')")
        change("""UPDATE {dataset_document} SET owner = NULL, lease_until = NULL, attempts = attempts - 1
            WHERE run = 'RUNNING' AND owner IS NOT NULL""")
    return recover(Principal.system())
