"""What every backup shares: which engine wrote a file, and whether it is ours and not of a newer release."""

from collections.abc import Callable, Iterable
from pathlib import Path

from db.migrate import known

_FIRST_BYTES = {b"SQLite format 3\x00": "sqlite", b"PGDMP": "postgres"}

Told = Callable[[int, int | None], None]  # how much is done, and how much there is where that is known


class BackupError(Exception):
    """A backup that can't be made or used; the message is for the operator."""


def engine_of(file: Path) -> str:
    """The engine that wrote this backup, by its first bytes. Raises BackupError for another kind of file."""
    with file.open("rb") as opened:
        first = opened.read(max(map(len, _FIRST_BYTES)))
    for mark, engine in _FIRST_BYTES.items():
        if first.startswith(mark):
            return engine
    raise BackupError(f"{file} is neither a SQLite database nor an archive of pg_dump")


def check_ours(place: Path | str, applied: Iterable[str]) -> None:
    """Raises BackupError where these migrations aren't ours."""
    if known()[0] not in applied:
        raise BackupError(f"{place} holds no Chatkeep database")


def check_release(file: Path, applied: Iterable[str]) -> None:
    """Raises BackupError where a backup with these migrations isn't ours, or is a newer release's."""
    names = set(applied)
    check_ours(file, names)
    if newer := sorted(names - set(known())):
        raise BackupError(f"{file} is of a newer release, which has migration {newer[-1]}; upgrade Chatkeep first")
