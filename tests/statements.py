"""What a piece of work asks of the database: its statements and commits, by the thread that makes them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from peewee import Database

PING = "SELECT 1"
_WRITES = ("INSERT", "UPDATE", "DELETE", "WITH")
_JOURNAL = ("run_event", "pg_notify")
# Threads that work at their own pace, whatever is asked.
BACKGROUND = ("run-keeper", "run-recovery", "journal-follower", "ingestion", "ingestion-keeper")


@dataclass
class Heard:
    """Statements in order, and commits: of transactions, and of writes outside of one."""

    statements: list[str] = field(default_factory=list)
    commits: int = 0

    @property
    def pings(self) -> int:
        return self.statements.count(PING)

    @property
    def beyond_the_journal(self) -> list[str]:
        return [text for text in self.statements if not any(word in text for word in _JOURNAL)]


@contextmanager
def listening() -> Iterator[Heard]:
    """Everything while this lasts, but for what the background does."""
    heard = Heard()
    execute, commit = Database.execute_sql, Database.commit

    def executed(self: Database, sql: str, *more: Any) -> Any:
        if threading.current_thread().name not in BACKGROUND:
            heard.statements.append(sql)
            heard.commits += sql.startswith(_WRITES) and not self.in_transaction()
        return execute(self, sql, *more)

    def committed(self: Database) -> Any:
        heard.commits += threading.current_thread().name not in BACKGROUND
        return commit(self)

    Database.execute_sql, Database.commit = executed, committed
    try:
        yield heard
    finally:
        Database.execute_sql, Database.commit = execute, commit
