"""Migrations: one process at a time brings the schema up to date, the others wait and find nothing to do.

The lock is PostgreSQL's advisory lock on a session connection (not through a transaction pooler: see
`CHATKEEP_MIGRATE_URL`) or SQLite's write lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files

from playhouse.migrations import Runner

from conf.settings import Settings
from db.database import SQLITE, TABLES, connection, database, dialect, fetch, open_database

_LOCK = 0x63686174  # "chat"


class SchemaTaken(Exception):
    """The schema holds tables of these names that another system made."""


def migrate(settings: Settings) -> list[str]:
    """Apply what is pending and return its names. Raises SchemaTaken."""
    opened = open_database(settings, settings.migrate_url)
    with connection(), exclusive(), as_file(files("db") / "migrations") as directory:
        runner = Runner(opened, str(directory), schema=opened.schema)
        _refuse_strangers(runner, opened.schema)
        applied: list[str] = runner.up()
    if settings.migrate_url:
        opened.close_all()
        open_database(settings)
    return applied


def pending(settings: Settings) -> list[str]:
    """Names of migrations that this database still lacks."""
    with connection(), as_file(files("db") / "migrations") as directory:
        runner = Runner(database.obj, str(directory), schema=database.obj.schema)
        return [step.name for step in runner.status() if step.applied is None]


def known() -> list[str]:
    """Names of this release's migrations, in order."""
    return sorted(
        path.name.removesuffix(".py") for path in (files("db") / "migrations").iterdir() if path.name[0].isdigit()
    )


@contextmanager
def exclusive() -> Iterator[None]:
    """Nobody else migrates meanwhile. On PostgreSQL the schema is made; on SQLite this is a transaction."""
    if dialect() is SQLITE:
        with database.atomic("IMMEDIATE"):
            yield
        return
    database.execute_sql("SET lock_timeout = 0; SET statement_timeout = 0")
    fetch("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        database.execute_sql(f'CREATE SCHEMA IF NOT EXISTS "{database.obj.schema}"')
        yield
    finally:
        fetch("SELECT pg_advisory_unlock(%s)", (_LOCK,))
        database.execute_sql("SET lock_timeout = DEFAULT; SET statement_timeout = DEFAULT")


def _refuse_strangers(runner: Runner, schema: str | None) -> None:
    if runner.applied():
        return
    taken = set(TABLES) & set(database.get_tables(schema=schema))
    if taken:
        place = f"schema {schema!r}" if schema else "this file"
        raise SchemaTaken(
            f"{place} already holds another system's table {min(taken)!r}; "
            "choose another one by CHATKEEP_DATABASE_SCHEMA or CHATKEEP_DATABASE_URL"
        )
