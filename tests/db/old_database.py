"""A database of the first migration, as tests/db/make_fixture.py kept it, and what stands in a database's tables."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import psycopg2

from conf.settings import Settings
from db.database import database, dialect, fetch
from tests.db.make_fixture import FIXTURES

Rows = dict[str, list[tuple[Any, ...]]]


def restore(settings: Settings, engine: str, *, rows_only: bool = False) -> None:
    """Load the old database; or its rows alone, as its server would write them, into a schema that is there."""
    script = (FIXTURES / f"0001_{engine}.sql").read_text()
    if rows_only:
        place = "" if engine == "sqlite" else "chatkeep."
        script = script[script.index(f"INSERT INTO {place}tenant ") :].partition("SELECT setval")[0]
    if engine == "sqlite":
        opened: Any = sqlite3.connect(settings.database.url.removeprefix("sqlite:///"))
        opened.executescript(script)
    else:
        opened = psycopg2.connect(settings.database.url)
        opened.cursor().execute(script)
        opened.commit()
    opened.close()


def columns_of(table: str) -> list[str]:
    return sorted(column.name for column in database.get_columns(table, database.obj.schema))


def contents(columns: dict[str, list[str]]) -> Rows:
    """Every row of these tables by these columns, documents as the text that they are stored as."""
    place = f'"{database.obj.schema}".' if database.obj.schema else ""
    told: Rows = {}
    for table, names in columns.items():
        chosen = ", ".join(f"CAST({name} AS text)" for name in names)
        told[table] = sorted(fetch(f"SELECT {chosen} FROM {place}{table}"), key=repr)
    return told


def old_tables() -> dict[str, list[str]]:
    """The tables with their columns, without the history of migrations and the inside of SQLite's text index."""
    names = set(database.get_tables(schema=database.obj.schema)) - {"schema_migration"}
    return {name: columns_of(name) for name in names if not name.startswith("dataset_chunk_text")}


def files_of(tables: Iterable[str]) -> dict[str, Any]:
    """The file of each table: another one where it was rewritten."""
    if dialect().name == "sqlite":
        return {}
    return dict(fetch("SELECT relname, relfilenode FROM pg_class WHERE relname = ANY(%s)", [list(tables)]))
