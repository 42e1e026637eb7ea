"""Connections: one pool a process, on either engine.

`database` is a proxy that `open_database` fills once. Services hold a connection only inside
`with connection():`, which nests; a change stands in `with transaction():`. Every statement is
fetched to its end, since an open RETURNING keeps SQLite's write lock.
"""

import logging
import select
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg2
import psycopg2.extensions
import stamina
import structlog
from peewee import DatabaseProxy, InterfaceError, InternalError, OperationalError, QueryEvent
from playhouse.pool import MaxConnectionsExceeded, PooledPostgresqlDatabase, PooledSqliteDatabase

from conf.settings import DocumentSettings, Settings

_FRESH = 1.0  # seconds after its last use that a connection isn't asked whether it lives
OWN_CONNECTIONS = 3  # beside the pool: the threads that keep, recover and follow runs
_SQLITE = "sqlite:///"
Result = TypeVar("Result")

log = structlog.get_logger()
database = DatabaseProxy()

# What passes: a lost connection, a restart, a lock held too long, a full pool, a standby not promoted yet.
TROUBLE = (OperationalError, InterfaceError, InternalError, MaxConnectionsExceeded)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two engines spell differently. `now` is the database's clock in epoch seconds."""

    name: str
    now: str
    for_update: str  # FOR UPDATE would block the foreign-key checks of child rows
    find: str  # the function that finds a text in a text
    skip_locked: str  # the same, but for rows that somebody holds just now
    items: str  # a table of the texts in a JSON array
    raw: str  # what JSON is read as: SQLite's driver decodes a text, which nobody needs to send it on


SQLITE = Dialect("sqlite", "((julianday('now') - 2440587.5) * 86400.0)", "", "instr", "", "json_each(%s)", "blob")
POSTGRES = Dialect(
    "postgres", "extract(epoch from clock_timestamp())::float8", " FOR NO KEY UPDATE", "strpos",
    " FOR NO KEY UPDATE SKIP LOCKED", "json_array_elements_text(%s::json)", "text",
)

PRAGMAS = {
    "journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 50,
    "synchronous": "full", "journal_size_limit": 64 * 1024 * 1024,
}
_LOCKED = 30.0  # seconds to wait for SQLite's write lock
_TIMEOUTS = {
    "statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "60s",
}
_KEEPALIVE = {
    "connect_timeout": 5, "keepalives_idle": 30, "keepalives_interval": 5,
    "keepalives_count": 3, "tcp_user_timeout": 10_000,
}


class Waiting:
    """Who waits for a connection of a full pool is woken as soon as one is free. peewee's pool by itself may
    miss that moment and look again a second later; under hundreds of streams that was a 503.

    Each of `wait_hooks` is told the seconds of a wait, as each of peewee's `query_hooks` is of a statement.
    """

    _free: threading.Semaphore
    wait_hooks: list[Callable[[float], None]]

    def connect(self, reuse_if_open: bool = False) -> bool:
        if reuse_if_open and not self.is_closed():  # type: ignore[attr-defined]
            return False
        if not self._free.acquire(blocking=False):
            self._wait()
        try:
            return bool(super().connect(reuse_if_open))  # type: ignore[misc]
        except BaseException:
            self._free.release()
            raise

    def _wait(self) -> None:
        began = time.monotonic()
        found = self._free.acquire(timeout=self._wait_timeout)  # type: ignore[attr-defined]
        for hook in self.wait_hooks:
            hook(time.monotonic() - began)
        if not found:
            raise MaxConnectionsExceeded("every connection of the pool is in use")

    @property
    def in_use(self) -> int:
        """Connections that somebody holds."""
        return len(self._in_use)  # type: ignore[attr-defined]

    @property
    def size(self) -> int:
        """Connections that there may be."""
        return int(self._max_connections)  # type: ignore[attr-defined]

    def close(self) -> bool:
        was_open = not self.is_closed()  # type: ignore[attr-defined]
        try:
            return bool(super().close())  # type: ignore[misc]
        finally:
            if was_open and self.is_closed():  # type: ignore[attr-defined]
                self._free.release()


class PatientCursor(sqlite3.Cursor):
    """Waits for SQLite's write lock in short tries.

    While SQLite waits by itself it holds its connection's mutex. Whoever holds the write lock may collect garbage
    just then, a cursor of that connection among it, and closing that cursor needs the mutex: both would wait.
    """

    def execute(self, *statement: Any) -> "PatientCursor":
        until = time.monotonic() + _LOCKED
        while True:
            try:
                return super().execute(*statement)
            except sqlite3.OperationalError as error:
                is_waiting = "database is locked" in str(error) and not self.connection.in_transaction
                if not is_waiting or time.monotonic() > until:
                    raise


class PatientConnection(sqlite3.Connection):
    def cursor(self, factory: Any = PatientCursor) -> Any:
        return super().cursor(factory)


class SqlitePool(Waiting, PooledSqliteDatabase):  # type: ignore[misc]
    """SQLite's pool: opening a file anew for each request costs more than the request."""

    dialect = SQLITE
    schema: str | None = None
    limits: DocumentSettings
    rendered: dict[str, str]
    told: Callable[[str, int, int], None]  # see db/schema_change.py

    def _set_pragmas(self, conn: Any) -> None:
        """SQLite doesn't wait for the lock that a change to WAL needs: many first starts at once collide."""
        for _ in range(200):
            try:
                super()._set_pragmas(conn)  # type: ignore[misc]
            except sqlite3.OperationalError:
                time.sleep(0.05)
            else:
                return
        super()._set_pragmas(conn)  # type: ignore[misc]


_BEYOND_LIMITS = "54"  # PostgreSQL's class of codes for it


class LossIsOperational(psycopg2.extensions.cursor):
    """psycopg2 has two classes for a lost connection; the plain DatabaseError would also be that of our bugs.

    And it counts as passing trouble what a limit of PostgreSQL refuses, which it would refuse again for ever.
    """

    def execute(self, *query: Any) -> None:
        try:
            super().execute(*query)
        except psycopg2.DatabaseError as error:
            if type(error) is psycopg2.DatabaseError:
                raise psycopg2.OperationalError(*error.args) from error
            if (error.pgcode or "").startswith(_BEYOND_LIMITS):
                raise psycopg2.DataError(*error.args) from error
            raise


class PostgresPool(Waiting, PooledPostgresqlDatabase):  # type: ignore[misc]
    """A pool that asks a connection whether it lives after checkout, outside the pool's lock.

    peewee asks inside it: one stuck backend then stops every thread of the process. Whether the server closed it
    is seen without asking, so one that was used a moment ago isn't asked.
    """

    dialect = POSTGRES
    _used: dict[int, float]
    schema: str | None = None
    limits: DocumentSettings
    rendered: dict[str, str]
    told: Callable[[str, int, int], None]  # see db/schema_change.py

    def _is_closed(self, conn: Any) -> bool:
        return bool(conn.closed) or has_input(conn)

    def _close(self, conn: Any, close_conn: bool = False) -> None:
        self._used[id(conn)] = time.monotonic()
        super()._close(conn, close_conn)

    def connect(self, reuse_if_open: bool = False) -> bool:
        while True:
            opened = bool(super().connect(reuse_if_open))
            if time.monotonic() - self._used.pop(id(self.connection()), 0) < _FRESH:
                return opened
            try:
                self.execute_sql("SELECT 1").fetchall()
            except (OperationalError, InterfaceError):
                self.manual_close()
                continue
            return opened


Pool = SqlitePool | PostgresPool


def sqlite_path(url: str) -> Path | None:
    """The file that a URL names; None where it is another engine's, or names memory."""
    path = url.removeprefix(_SQLITE)
    return Path(path) if url.startswith(_SQLITE) and path != ":memory:" else None


def open_database(settings: Settings, url: str = "") -> Pool:
    """Fill the proxy with the pool that the settings name. Opens no connection yet."""
    url = url or settings.database.url
    pool = {
        "max_connections": settings.database.pool_size + OWN_CONNECTIONS,
        "timeout": settings.database.pool_timeout,
        "autoconnect": False,
    }
    if url.startswith(_SQLITE):
        opened: Pool = _open_sqlite(url.removeprefix(_SQLITE), pool)
    elif url.startswith(("postgresql://", "postgres://")):
        opened = _open_postgres(url.replace("postgres://", "postgresql://", 1), settings, pool)
    else:
        raise ValueError(f"database.url must begin with sqlite:/// or postgresql://, not {url.split(':')[0]!r}")
    opened.rendered, opened.wait_hooks = {}, []
    if logging.getLogger(__name__).isEnabledFor(logging.DEBUG):
        opened.query_hooks.append(_log_statement)
    opened._free = threading.Semaphore(settings.database.pool_size + OWN_CONNECTIONS)
    opened.limits = settings.document
    opened.told = lambda table, done, total: None
    database.initialize(opened)
    return opened


def _open_sqlite(path: str, pool: dict[str, Any]) -> Pool:
    if sqlite3.sqlite_version_info < (3, 35):
        raise ValueError(f"SQLite 3.35 or newer is needed, this Python has {sqlite3.sqlite_version}")
    if path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    opened = SqlitePool(
        path, pragmas=PRAGMAS, lock_type="IMMEDIATE", check_same_thread=False, factory=PatientConnection, **pool
    )
    opened.register_function(_lower, "lower", 1, True)  # SQLite's own knows 26 letters
    return opened


def _lower(text: str | None) -> str | None:
    return text.lower() if isinstance(text, str) else text


def _open_postgres(url: str, settings: Settings, pool: dict[str, Any]) -> Pool:
    try:
        psycopg2.extensions.parse_dsn(url)
    except psycopg2.ProgrammingError:
        raise ValueError(
            "the database's URL can't be read; it is postgresql://user:password@host:port/name, "
            "with %40 for an @ in the password and so on"
        ) from None  # libpq's own words repeat the password
    options = {} if settings.database.pooler else {
        "options": " ".join(f"-c {name}={value}" for name, value in _TIMEOUTS.items())
    }
    opened = PostgresPool(url, cursor_factory=LossIsOperational, **_KEEPALIVE, **options, **pool)
    opened.schema = settings.database.schema_name
    opened._used = {}
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


def wait_for_notification(timeout: float) -> None:
    """Sleep until PostgreSQL notifies this connection, or `timeout` seconds. Raises OperationalError if it is lost."""
    raw = database.connection()
    if has_input(raw, timeout):
        try:
            raw.poll()
        except psycopg2.Error as lost:
            raise OperationalError(*lost.args) from lost
        raw.notifies.clear()


def has_input(raw: Any, timeout: float = 0.0) -> bool:
    """Whether the server said something unasked, or went, within `timeout` seconds. Not by `select`, which knows
    the first 1,024 files of a process only."""
    listening = select.poll()
    listening.register(raw, select.POLLIN)
    return bool(listening.poll(timeout * 1000))


def retried(work: Callable[[], Result], timeout: float = 10.0) -> Result:
    """`work` again on a fresh connection while the database is in trouble, for `timeout` seconds. It must be
    safe to repeat: a commit whose answer was lost happened."""
    for attempt in stamina.retry_context(on=TROUBLE, attempts=None, timeout=timeout, wait_max=2):
        with attempt:
            return work()
    raise AssertionError("unreachable")
