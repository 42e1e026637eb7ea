"""Reading runs of other processes: one thread follows the journal for all readers of this process.

On PostgreSQL it sleeps until a flush notifies it; where a transaction pooler stands between, and on
SQLite, it polls.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import structlog

from db.database import TROUBLE, connection, database, dialect, fetch
from db.jsontext import dumps
from db.postgres import POSTGRES, wait_for_notification
from services.events import End
from services.runs import journal
from services.runs.tape import Tape

log = structlog.get_logger()

_POLL = 0.05  # seconds between two looks where nobody notifies
_LOOK = 1.0  # seconds between two looks at the rows of silent runs
_LISTEN = 0.5  # seconds of listening without a look: a notification may be lost with its connection


class Follower:
    """Tapes of runs that another process owns, as long as somebody reads them."""

    def __init__(self, *, polling: bool = False) -> None:
        self._polling = polling
        self._tapes: dict[str, Tape] = {}
        self._readers: dict[str, int] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, name="journal-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self.is_alive:
            self._thread.join(5)

    @contextmanager
    def tape(self, run_id: str) -> Iterator[Tape]:
        """The run's tape from its first event. It is over without an end where the run's row has ended, or is
        gone, and the journal has no more to tell."""
        with self._changed:
            tape = self._tapes.setdefault(run_id, Tape())
            self._readers[run_id] = self._readers.get(run_id, 0) + 1
            self._changed.notify_all()
        try:
            yield tape
        finally:
            with self._changed:
                self._readers[run_id] -= 1
                if not self._readers[run_id]:
                    del self._readers[run_id], self._tapes[run_id]

    def _follow(self) -> None:
        while not self._stopped:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or any(not tape.over for tape in self._tapes.values()))
            try:
                with connection():
                    self._follow_with_connection()
            except TROUBLE:
                log.warning("the database does not answer; readers wait for it", exc_info=True)
                time.sleep(_LISTEN)

    def _follow_with_connection(self) -> None:
        if self._polling or dialect() is not POSTGRES:
            self._follow_with(partial(time.sleep, _POLL))
            return
        database.execute_sql(f"LISTEN {journal.CHANNEL}")
        try:
            self._follow_with(partial(wait_for_notification, database.connection(), _LISTEN))
        finally:  # or notifications would heap up on a connection of the pool
            database.execute_sql(f"UNLISTEN {journal.CHANNEL}")

    def _follow_with(self, pause: Callable[[], None]) -> None:
        looked = 0.0
        while tapes := self._open():
            self._show_news(tapes)
            if time.monotonic() - looked >= _LOOK:
                self._close_ended(tapes)
                looked = time.monotonic()
            pause()

    def _open(self) -> dict[str, Tape]:
        with self._changed:
            if self._stopped:
                return {}
            return {run_id: tape for run_id, tape in self._tapes.items() if not tape.over}

    def _show_news(self, tapes: dict[str, Tape]) -> None:
        news = journal.read_many({run_id: tape.last for run_id, tape in tapes.items()})
        for run_id, said in news.items():
            tapes[run_id].show([each.event for each in said], over=isinstance(said[-1].event, End))

    def _close_ended(self, tapes: dict[str, Tape]) -> None:
        """A run may end without an end in the journal: deleted with its session, or long ago."""
        going = {row[0] for row in fetch(
            "SELECT id FROM {run} WHERE id IN (SELECT value FROM {items}) AND status IN ('active', 'queued')",
            [dumps(list(tapes))],
        )}
        ended = {run_id: tape for run_id, tape in tapes.items() if run_id not in going}
        self._show_news(ended)  # what it said last may have come between the two looks
        for tape in ended.values():
            tape.show([], over=True)
