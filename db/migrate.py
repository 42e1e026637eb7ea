"""Migrations: one process at a time brings the schema up to date, the others wait and find nothing to do.

The lock is PostgreSQL's advisory lock on a session connection (not through a transaction pooler: see
`CHATKEEP_MIGRATE_URL`) or SQLite's write lock. Servers of the release before go on meanwhile and afterwards:
what a migration may do to their tables is in schema_change.py.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files

import stamina
from peewee import OperationalError
from playhouse.migrations import Runner

from conf.settings import Settings
from db.database import TABLES, connection, database, dialect, fetch, open_database
from db.schema_change import LOCK_WAIT, Told
from db.sqlite import SQLITE

_LOCK = 0x63686174  # "chat"
_PATIENCE = 600  # seconds that a table is asked for which a long transaction holds
_HELD = ("55P03", "40P01")  # PostgreSQL's codes for a lock that wasn't given in time, and for a deadlock


class SchemaTaken(Exception):
    """The schema holds tables of these names that another system made."""


def migrate(settings: Settings, told: Told | None = None) -> list[str]:
    """Apply what is pending and return its names; `told` hears of long ones. Raises SchemaTaken, TimeoutError."""
    opened = open_database(settings, settings.migrate_url)
    opened.told = told or opened.told
    with connection(), exclusive(), as_file(files("db") / "migrations") as directory:
        runner = Runner(opened, str(directory), schema=opened.schema)
        _refuse_strangers(runner, opened.schema)
        applied = _apply(runner)
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
    database.execute_sql(f"SET lock_timeout = '{LOCK_WAIT}'; SET statement_timeout = 0")
    # Asked again and again: an index that is built concurrently waits for every statement that waits.
    while not fetch("SELECT pg_try_advisory_lock(%s)", (_LOCK,))[0][0]:
        time.sleep(0.1)
    try:
        database.execute_sql(f'CREATE SCHEMA IF NOT EXISTS "{database.obj.schema}"')
        yield
    finally:
        fetch("SELECT pg_advisory_unlock(%s)", (_LOCK,))
        database.execute_sql("SET lock_timeout = DEFAULT; SET statement_timeout = DEFAULT")


def _apply(runner: Runner) -> list[str]:
    """Apply what is pending. A table that somebody holds is asked for again later: everyone waits behind who waits."""
    before = runner.applied()
    try:
        for attempt in stamina.retry_context(on=_is_held, attempts=None, timeout=_PATIENCE, wait_max=5):
            with attempt:
                runner.up()
    except OperationalError as error:
        if not _is_held(error):
            raise
        raise TimeoutError(
            f"a transaction has held a table for {_PATIENCE} seconds; end it, or migrate when it has ended"
        ) from error
    return sorted(name for name in runner.applied() if name not in before)


def _is_held(error: Exception) -> bool:
    return getattr(getattr(error, "orig", None), "pgcode", None) in _HELD


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
