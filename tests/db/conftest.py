"""Databases with nothing in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest

from conf.settings import Settings, load_settings
from db.database import database, open_database
from db.ids import new_id


@pytest.fixture
def fresh(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings for a database with nothing in it, open."""
    with empty_database(engine, request, tmp_path) as settings:
        open_database(settings)
        yield settings


@contextmanager
def empty_database(engine: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    """Settings for a database with nothing in it; it is gone at the end."""
    if engine == "sqlite":
        yield load_settings(database={"url": f"sqlite:///{folder / 'fresh.db'}"}, runs={"poll": 0.05})
        database.obj.close_all()
        return
    server = request.getfixturevalue("postgres")
    name = f"fresh_{new_id()}"
    execute(server, f"CREATE DATABASE {name}")
    url = server.replace("/postgres?", f"/{name}?")
    assert url != server
    yield load_settings(database={"url": url}, runs={"poll": 0.05})
    database.obj.close_all()
    execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def execute(url: str, *statements: str) -> None:
    opened = psycopg2.connect(url)
    opened.autocommit = True
    for statement in statements:
        opened.cursor().execute(statement)
    opened.close()
