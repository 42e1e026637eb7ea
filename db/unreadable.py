"""What SQLite keeps although nobody can read it: it takes any bytes for a text, and damaged ones stay where they are.

PostgreSQL looks at what it is given, so there is nothing of the kind in it.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from db.database import TABLES
from db.jsontext import loads
from db.models import DocumentRow
from db.rows import DocumentField

ROWS = 1_000  # that one statement reads, so that no snapshot stands open for long

Execute = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]

_DOCUMENTS = {field.name for field in DocumentRow._meta.sorted_fields if isinstance(field, DocumentField)}
_TEXTS = "SELECT name FROM pragma_table_info(?) WHERE type LIKE 'text' OR type LIKE 'varchar%'"


class Undecodable(ValueError):
    """A text that was asked for isn't UTF-8."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row by its table and its id, or by that of what it belongs to, and the first thing that is wrong in it."""

    table: str
    id: str
    problem: str


def unreadable(execute: Execute) -> Iterator[Unreadable]:
    """Each row of our tables with a text that isn't UTF-8, or a document that isn't JSON. `execute` asks SQLite."""
    for table in TABLES:
        columns = [name for (name,) in execute(_TEXTS, [table])]
        if columns:
            yield from _in_table(execute, table, columns)


def naming(columns: Sequence[str]) -> str:
    """The column that names a row of a table with these columns, or what it belongs to."""
    return "id" if "id" in columns else columns[0]


@contextmanager
def decoding() -> Iterator[None]:
    """Raises Undecodable where SQLite's driver met a text that isn't UTF-8, for which it has no class of its own."""
    try:
        yield
    except sqlite3.OperationalError as error:  # of a fetch, which peewee doesn't look after
        if "Could not decode to UTF-8" not in str(error):
            raise
        raise Undecodable(str(error)) from error


def _in_table(execute: Execute, table: str, columns: Sequence[str]) -> Iterator[Unreadable]:
    chosen = ", ".join(f"CAST({name} AS blob)" for name in (naming(columns), *columns))
    statement = f"SELECT rowid, {chosen} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT {ROWS}"
    for key, *values in _rows(execute, statement):
        problem = next(filter(None, map(_problem, columns, values)), None)
        if problem:
            yield Unreadable(table, (key or b"").decode(errors="replace"), problem)


def _rows(execute: Execute, statement: str) -> Iterator[tuple[Any, ...]]:
    """What a statement that begins behind a rowid gives, again and again to the table's end."""
    last: int | None = 0
    while last is not None:
        before, last = last, None
        for row in execute(statement, [before]):
            last = row[0]
            yield row[1:]


def _problem(column: str, value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        text = value.decode()
        if column in _DOCUMENTS:
            loads(text)
    except UnicodeDecodeError as error:
        return f"{column} isn't UTF-8: byte {error.start} is {value[error.start]:#04x}"
    except (ValueError, RecursionError):
        return f"{column} isn't JSON"
    return None
