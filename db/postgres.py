"""PostgreSQL: its pool, its limits of time, and what it says unasked."""

import re
import select
import time
from typing import Any

import psycopg2
import psycopg2.extensions
from peewee import InterfaceError, OperationalError
from playhouse.pool import PooledPostgresqlDatabase

from conf.settings import DatabaseSettings
from db.pool import Dialect, WaitingPool

POSTGRES = Dialect(
    "postgres", "extract(epoch from clock_timestamp())::float8", " FOR NO KEY UPDATE",
    " FOR NO KEY UPDATE SKIP LOCKED", "strpos", "json_array_elements_text(%s::json)", "text",
)
_TIMEOUTS = {
    "statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "60s",
}
_KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 5, "keepalives_idle": 30, "keepalives_interval": 5,
    "keepalives_count": 3, "tcp_user_timeout": 10_000,
}
_FRESH = 1.0  # seconds after its last use that a connection isn't asked whether it lives


# libpq takes another @ or an earlier / for the beginning of the host, and complains with the rest of the password.
_READ_AS_MEANT = re.compile(r"postgresql://([^@/]*@)?[^@]*")
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


class PostgresPool(WaitingPool, PooledPostgresqlDatabase):  # type: ignore[misc]
    """A pool that asks a connection whether it lives after checkout, outside the pool's lock.

    peewee asks inside it: one stuck backend then stops every thread of the process. Whether the server closed it
    is seen without asking, so one that was used a moment ago isn't asked.
    """

    dialect = POSTGRES

    def __init__(self, url: str, *, schema: str | None, **options: Any) -> None:
        self.schema = schema
        self._used: dict[int, float] = {}
        super().__init__(url, cursor_factory=LossIsOperational, **_KEEPALIVE, **options)

    @property
    def place(self) -> str:
        """Where the database is, for an operator, without a password; as the connection has it."""
        info = self.connection().info
        return f"schema {self.schema} of {info.dbname} at {info.host}"

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


def open_postgres(url: str, settings: DatabaseSettings, **pool: Any) -> PostgresPool:
    """The pool of a URL's database. Raises ValueError where libpq can't read the URL, or wouldn't as it is meant."""
    url = url.replace("postgres://", "postgresql://", 1)
    if not _can_be_read(url):
        raise ValueError(
            "the database's URL can't be read; it is postgresql://user:password@host:port/name, "
            "with %40 for an @ in the password, %2F for a / and so on"
        )  # libpq's own words repeat the password
    timeouts = " ".join(f"-c {name}={value}" for name, value in _TIMEOUTS.items())
    options = {} if settings.pooler else {"options": timeouts}
    return PostgresPool(url, schema=settings.schema_name, **options, **pool)


def _can_be_read(url: str) -> bool:
    try:
        ports = psycopg2.extensions.parse_dsn(url).get("port", "")
    except psycopg2.ProgrammingError:
        return False
    are_ports = all(port == "" or (port.isdecimal() and int(port) <= 65_535) for port in ports.split(","))
    return are_ports and _READ_AS_MEANT.fullmatch(url) is not None


def wait_for_notification(raw: Any, timeout: float) -> None:
    """Sleep until PostgreSQL notifies psycopg2's connection `raw`, or `timeout` seconds. Raises OperationalError
    if it is lost."""
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
