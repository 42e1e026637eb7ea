"""The rows of a SQLite backup, carried into PostgreSQL: every table, ids and times as they are, in one transaction.

PostgreSQL makes its text index itself. What it can't hold and what comes in never has (U+0000, halves of a surrogate
pair in a document) is cleaned as db/jsontext.py does it; whatever else it refuses ends the move, with the row's name.
"""

import re
import sqlite3
from binascii import hexlify
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg2
from peewee import OperationalError

from db.backup import BackupError, Told
from db.backup_postgres import applied_in_schema, check_empty
from db.backup_sqlite import opened
from db.database import TABLES, change, connection, database, fetch, render, transaction
from db.jsontext import clean_json
from db.migrate import exclusive
from db.unreadable import naming
from db.vector_index import vector_text

BATCH = 1_000_000  # bytes sent at once, and the row that goes beyond

_MOVED = [table for table in TABLES if table != "dataset_chunk_text"]  # an owner stands before what it owns
_REFUSED = ("22", "23", "54")  # PostgreSQL's classes of codes: a wrong value, a broken key, beyond a limit
_HELD = "55P03"  # its code for a lock that wasn't given in time
_PLACE = re.compile(r"COPY \w+, \D*(\d+)(?:, \S+ (\w+))?")  # in any language: line, column
_LONG = 200  # characters of a complaint, which may repeat a value
_COLUMNS = """SELECT column_name, udt_name FROM information_schema.columns
    WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position"""


def check_vacant(schema: str) -> None:
    """Raises BackupError where the schema holds anything but our tables, or a row in one of them."""
    if not applied_in_schema(schema):
        check_empty(schema)
        return
    there = set(database.get_tables(schema=schema))
    for table in _MOVED:
        if table in there and fetch(f"SELECT 1 FROM {{{table}}} LIMIT 1"):
            raise BackupError(
                f"schema {schema!r} holds rows of {table!r} already; restore into another database, or drop the "
                "schema first"
            )


def move(file: Path, told: Told) -> None:
    """Fill our tables, which are there without a row, with a SQLite backup of this release, whole or not at all.

    `told` hears of rows. Raises BackupError.
    """
    with opened(file, "ro") as kept, connection(), exclusive(), transaction():
        _hold_tables()
        check_vacant(database.obj.schema)
        kept.execute("BEGIN")  # every table as it is at this moment
        total = sum(kept.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _MOVED)
        done = 0
        for table in _MOVED:
            for count in _Table(file, kept, table).moved():
                done += count
                told(done, total)


def _hold_tables() -> None:
    """Nobody else writes into our tables before the transaction's end. Raises BackupError where somebody does now."""
    change("SET LOCAL idle_in_transaction_session_timeout = 0")  # the disk that is read from may be slow
    try:
        change(f"LOCK TABLE {', '.join('{%s}' % table for table in _MOVED)} IN SHARE ROW EXCLUSIVE MODE")
    except OperationalError as error:
        if getattr(getattr(error, "orig", None), "pgcode", None) != _HELD:
            raise
        raise BackupError(f"somebody writes into schema {database.obj.schema!r}; stop the servers on it") from error


class _Table:
    """One table on its way: what is read there, how it is written here, and what a row is called."""

    def __init__(self, file: Path, kept: sqlite3.Connection, table: str) -> None:
        self._file, self._kept, self._table = file, kept, table
        columns = fetch(_COLUMNS, [database.obj.schema, table])
        self._names = [name for name, _ in columns]
        self._encoders = [_ENCODERS.get(kind, _escaped) for _, kind in columns]
        # As bytes, whatever SQLite holds: PostgreSQL judges it. A float's text would lack its last digits.
        self._read = ", ".join(name if kind == "float8" else f"CAST({name} AS blob)" for name, kind in columns)

    def moved(self) -> Iterator[int]:
        """Send the rows batch by batch; how many were in each."""
        copy = render(f"COPY {{{self._table}}} ({', '.join(self._names)}) FROM STDIN WITH (ENCODING 'UTF8')")
        done = 0
        for count, lines in self._batches():
            with database.connection().cursor() as cursor:
                try:
                    cursor.copy_expert(copy, lines)
                except psycopg2.Error as error:
                    if (error.pgcode or "")[:2] not in _REFUSED:
                        raise OperationalError(*error.args) from error
                    raise self._refusal(error, done) from error
            done += count
            yield count

    def _batches(self) -> Iterator[tuple[int, BytesIO]]:
        """How many rows, and these in COPY's text format; the next ones take their place."""
        count, lines = 0, BytesIO()
        for number, row in enumerate(self._kept.execute(f"SELECT {self._read} FROM {self._table} ORDER BY rowid")):
            try:
                lines.writelines(_line(self._encoders, row))
            except ValueError as error:
                raise self._unfit(f" {self._name(number)}", str(error)) from error
            count += 1
            if lines.tell() > BATCH:
                lines.seek(0)
                yield count, lines
                count = 0
                lines.seek(0)
                lines.truncate()
        lines.seek(0)
        yield count, lines

    def _refusal(self, error: psycopg2.Error, done: int) -> BackupError:
        """What PostgreSQL said of a batch that begins behind so many rows."""
        complaint = ": ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
        place = _PLACE.match(error.diag.context or "")
        if place is None:
            return self._unfit("", complaint)
        row = f" {self._name(done + int(place[1]) - 1)}"
        return self._unfit(f"{row}: {place[2]}" if place[2] else row, complaint)

    def _unfit(self, row: str, complaint: str) -> BackupError:
        complaint = " ".join(complaint.split())[:_LONG]
        return BackupError(f"{self._file} doesn't fit into PostgreSQL: {self._table}{row}: {complaint}")

    def _name(self, number: int) -> str:
        statement = f"SELECT CAST({naming(self._names)} AS blob) FROM {self._table} ORDER BY rowid LIMIT 1 OFFSET ?"
        [(name,)] = self._kept.execute(statement, [number])
        return bytes(name or b"").decode(errors="replace")


def _line(encoders: Iterable[Callable[[Any], bytes]], row: Iterable[Any]) -> Iterator[bytes]:
    """A row in pieces: a file of many MB isn't copied to stand in a line."""
    between = b""
    for encode, value in zip(encoders, row, strict=True):
        yield between
        yield rb"\N" if value is None else encode(value)
        between = b"\t"
    yield b"\n"


def _escaped(text: bytes) -> bytes:
    for sign, written in ((b"\0", b""), (b"\\", rb"\\"), (b"\n", rb"\n"), (b"\r", rb"\r"), (b"\t", rb"\t")):
        text = text.replace(sign, written)
    return text


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "float8": lambda number: _escaped(str(number).encode()),
    "bytea": lambda content: rb"\\x" + hexlify(content),
    "vector": lambda vector: vector_text(vector).encode(),
    "json": lambda text: _escaped(clean_json(text)),
    "jsonb": lambda text: _escaped(clean_json(text)),
}
