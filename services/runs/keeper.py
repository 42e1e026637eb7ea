"""The thread that keeps this process's runs: it writes their journal, renews their leases, hears of cancels.

It has a connection of its own and one statement for all runs, so that 500 streams cost one commit in 50 ms.
"""

import threading
import time
from collections.abc import Callable

import structlog

from conf.settings import RunSettings
from db.database import TROUBLE, connection
from services.observer import Observer
from services.runs import journal
from services.runs.live import LiveRun
from services.runs.rows import RunService

log = structlog.get_logger()


class Keeper:
    """`running` gives the runs to keep, `waiting` the ids of queued ones, `stop` ends a run that nobody wants."""

    def __init__(
        self, settings: RunSettings, owner: str, running: Callable[[], list[LiveRun]],
        waiting: Callable[[], list[str]], stop: Callable[[LiveRun], None], observer: Observer,
    ) -> None:
        self.settings = settings
        self._observer = observer
        self.owner = owner
        self._running, self._waiting, self._stop_run = running, waiting, stop
        self._woken = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._keep, name="run-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something waits for the journal."""
        if not self._woken.is_set():
            self._woken.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stopped = True
        self._woken.set()
        if self.is_alive:
            self._thread.join(5)

    def _keep(self) -> None:
        while not self._stopped:
            try:
                with connection():
                    self._keep_with_connection()
            except TROUBLE:
                log.warning("the database does not answer; readers wait for it", exc_info=True)
                time.sleep(self.settings.poll)

    def _keep_with_connection(self) -> None:
        looked = renewed = 0.0
        while not self._stopped:
            self._woken.wait(self.settings.poll)
            self._woken.clear()
            flushed = time.monotonic()
            self._write_journal()
            if flushed - renewed >= self.settings.renew:
                ids = [run.start.id for run in self._running()] + self._waiting()
                RunService.renew(self.owner, ids, self.settings.lease)
                renewed = flushed
            if flushed - looked >= self.settings.poll:
                self._stop_unwanted()
                looked = flushed
            time.sleep(max(flushed + self.settings.flush - time.monotonic(), 0))

    def _write_journal(self) -> None:
        running = self._running()
        since = min(filter(None, (run.waits_since for run in running)), default=time.monotonic())
        taken = {run.start.id: (run, *run.unwritten()) for run in running}
        rows = [(id, n, journal.encode(events)) for id, (_, n, events) in taken.items() if events]
        if not rows:
            return
        kept = journal.write(self.owner, rows)
        self._observer.journal_written(time.monotonic() - since)
        for id, _, _ in rows:
            run, _, events = taken[id]
            if id in kept:
                run.wrote(len(events))
            else:  # deleted with its session, or ended by a recoverer
                self._stop_run(run)

    def _stop_unwanted(self) -> None:
        """Stop the runs whose cancel was asked for anywhere, or whose row is gone."""
        running = self._running()
        if not running:
            return
        wanted = RunService.still_wanted(self.owner)
        for run in running:
            if wanted.get(run.start.id, True):
                self._stop_run(run)
