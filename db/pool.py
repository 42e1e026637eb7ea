"""What the pools of both engines have in common, and what the engines spell differently."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playhouse.pool import MaxConnectionsExceeded

from conf.settings import DocumentSettings


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two engines spell differently. `now` is the database's clock in epoch seconds."""

    name: str
    now: str
    for_update: str  # FOR UPDATE would block the foreign-key checks of child rows
    skip_locked: str  # the same, but for rows that somebody holds just now
    find: str  # the function that finds a text in a text
    items: str  # a table of the texts in a JSON array
    raw: str  # what JSON is read as: SQLite's driver decodes a text, which nobody needs to send it on


class WaitingPool:
    """Who waits for a connection of a full pool is woken as soon as one is free. peewee's pool by itself may
    miss that moment and look again a second later; under hundreds of streams that was a 503.

    Each of `wait_hooks` is told the seconds of a wait, as each of peewee's `query_hooks` is of a statement.
    """

    dialect: Dialect
    schema: str | None = None

    def __init__(self, *where: Any, limits: DocumentSettings, **options: Any) -> None:
        self._free = threading.Semaphore(options["max_connections"])
        self.limits = limits
        self.rendered: dict[str, str] = {}
        self.wait_hooks: list[Callable[[float], None]] = []
        self.told: Callable[[str, int, int], None] = lambda table, done, total: None  # see db/schema_change.py
        super().__init__(*where, **options)

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
