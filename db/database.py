"""Connections: one pool a process, on either engine.

`database` is a proxy that `open_database` fills once. Services hold a connection only inside
`with connection():`, which nests; a change stands in `with transaction():`. Every statement is
fetched to its end, since an open RETURNING keeps SQLite's write lock.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import stamina
import structlog
from peewee import DatabaseProxy, InterfaceError, InternalError, OperationalError, QueryEvent
from playhouse.pool import MaxConnectionsExceeded

from conf.settings import Settings
from db.pool import Dialect
from db.postgres import PostgresPool, open_postgres
from db.sqlite import SQLITE, SqlitePool, open_sqlite

OWN_CONNECTIONS = 3  # beside the pool: the threads that keep, recover and follow runs
Result = TypeVar("Result")

log = structlog.get_logger()
database = DatabaseProxy()

# What passes: a lost connection, a restart, a lock held too long, a full pool, a standby not promoted yet.
TROUBLE = (OperationalError, InterfaceError, InternalError, MaxConnectionsExceeded)

Pool = SqlitePool | PostgresPool


def open_database(settings: Settings, url: str = "") -> Pool:
    """Fill the proxy with the pool that the settings name. Opens no connection yet."""
    url = url or settings.database.url
    pool = {
        "max_connections": settings.database.pool_size + OWN_CONNECTIONS,
        "timeout": settings.database.pool_timeout,
        "autoconnect": False,
        "limits": settings.document,
    }
    if url.startswith("sqlite:///"):
        opened: Pool = open_sqlite(url, **pool)
    elif url.startswith(("postgresql://", "postgres://")):
        opened = open_postgres(url, settings.database, **pool)
    else:
        scheme, found, _ = url.partition("://")
        named = f", not {scheme!r}" if found else ""  # what begins otherwise may be a password
        raise ValueError(f"database.url must begin with sqlite:/// or postgresql://{named}")
    if logging.getLogger(__name__).isEnabledFor(logging.DEBUG):
        opened.query_hooks.append(_log_statement)
    database.initialize(opened)
    return opened


def _log_statement(event: QueryEvent) -> None:
    """peewee's own log has the parameters too, which are credentials and what people say."""
    log.debug("sql", statement=event.sql, milliseconds=round(event.duration * 1000, 2))


def dialect() -> Dialect:
    spoken: Dialect = database.obj.dialect
    return spoken


def connection() -> Any:
    """A context that holds a connection of this thread; contexts nest."""
    return database.connection_context()


def transaction() -> Any:
    """A context that commits at its end; on SQLite it takes the write lock at its start. An inner one
    is part of the outer: it costs no savepoint, and its failure is the whole one's."""
    return database.transaction()


TABLES = (
    "tenant", "dialog", "conversation", "conversation_page", "api_4_conversation", "api_4_conversation_page",
    "chat_channel", "api_token", "run", "run_event", "message_index", "dataset", "dataset_document",
    "dataset_chunk", "dataset_chunk_text", "dataset_file", "dataset_vector",
)


def render(statement: str) -> str:
    """`{conversation}` becomes the table with its schema, `{now}` the database's clock, `%s` the engine's mark."""
    rendered: dict[str, str] = database.obj.rendered
    if statement not in rendered:
        rendered[statement] = _render(statement, database.obj.schema)
    return rendered[statement]


def _render(statement: str, schema: str | None) -> str:
    spoken = dialect()
    text = statement
    for word in ("now", "for_update", "skip_locked", "items", "raw"):
        text = text.replace("{%s}" % word, getattr(spoken, word))
    for table in TABLES:
        text = text.replace("{%s}" % table, f'"{schema}".{table}' if schema else table)
    return text.replace("%s", "?") if spoken is SQLITE else text


def fetch(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of one statement."""
    rows: list[tuple[Any, ...]] = database.execute_sql(render(statement), parameters).fetchall()
    return rows


def change(statement: str, parameters: Sequence[Any] = ()) -> int:
    """The number of rows that one statement changed."""
    return int(database.execute_sql(render(statement), parameters).rowcount)


def retried(work: Callable[[], Result], timeout: float = 10.0) -> Result:
    """`work` again on a fresh connection while the database is in trouble, for `timeout` seconds. It must be
    safe to repeat: a commit whose answer was lost happened."""
    for attempt in stamina.retry_context(on=TROUBLE, attempts=None, timeout=timeout, wait_max=2):
        with attempt:
            return work()
    raise AssertionError("unreachable")
