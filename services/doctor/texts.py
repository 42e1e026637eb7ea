"""SQLite's texts: each can be read, or is a finding of its own, and the other checks go on without it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from db.database import connection, database, dialect
from db.sqlite import SQLITE
from db.unreadable import Undecodable, decoding, unreadable
from services.doctor.finding import FROM_A_BACKUP, UNREADABLE, Finding

Examined = TypeVar("Examined")


def examine_texts() -> Iterator[Finding]:
    """Every row of SQLite's with a text that isn't UTF-8, or a document that isn't JSON."""
    if dialect() is not SQLITE:
        return
    with connection():
        for found in unreadable(_execute):
            yield Finding(UNREADABLE, found.id, f"{found.table}: {found.problem}", FROM_A_BACKUP)


def as_far_as_readable(examined: Iterator[Examined]) -> Iterator[Examined]:
    """The same; they end before a text that can't be read, which is a finding already."""
    with suppress(Undecodable), decoding():
        yield from examined


def _execute(statement: str, values: Sequence[Any]) -> Any:
    return database.execute_sql(statement, values)
