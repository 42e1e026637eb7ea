"""The runs of this process: a thread a run, which owns it.

Readers only read: they follow a run's events, and one that leaves changes nothing. A run ends in one
place, `LiveRun.end`, whoever asks first; a model that hangs can't hold up its ending.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from conf.settings import RunSettings, Settings
from services.errors import ModelFailure, Unavailable
from services.events import Answerer, End, ErrorCode, Event, FinishReason, Question
from services.observer import Observer
from services.runs.follower import Follower
from services.runs.keeper import Keeper
from services.runs.live import LiveRun, failure
from services.runs.readable import readable
from services.runs.recovery import INTERRUPTED, Recovery
from services.runs.values import Outcome, Start, this_process

log = structlog.get_logger()

_STORING = 20  # seconds that a shutdown waits for an answer that is being stored
_OUTCOMES = {
    FinishReason.STOP: Outcome.SUCCESS, FinishReason.LENGTH: Outcome.LENGTH,
    FinishReason.ERROR: Outcome.ERROR, FinishReason.INTERRUPTED: Outcome.CANCELLED,
}


class Workers:
    """Starts runs and ends them. One a process, with the threads that keep, recover and follow; `close` ends all."""

    def __init__(self, settings: Settings, observer: Observer | None = None) -> None:
        self.settings: RunSettings = settings.runs
        self.owner = this_process()
        self.draining = False
        self.follower = Follower(polling=settings.database.pooler)
        self._observer = observer or Observer()
        self._before_send = settings.stream.durability == "before_send"
        self._live: dict[str, LiveRun] = {}
        self._queued: set[str] = set()
        self._lock = threading.Lock()
        self._freed = threading.Condition()
        self._keeper = Keeper(settings.runs, self.owner, self._running, self._waiting, self._stop, self._observer)
        self._recovery = Recovery(settings.runs, self._observer)

    def open(self) -> None:
        """Recover what a former life of this host lost, then keep the runs in the background."""
        self._recovery.start()
        self._keeper.start()
        self.follower.start()

    def close(self) -> None:
        """Store what is running as interrupted, and stop."""
        self.draining = True
        for run in self._running():
            self._stop(run, Outcome.SHUTDOWN)
        deadline = time.monotonic() + _STORING
        while self._running() and time.monotonic() < deadline:
            self.wait_for_end(0.05)
        for thread in (self._recovery, self._keeper, self.follower):
            thread.stop()

    def drain(self, delay: float, timeout: float) -> None:
        """Take no new question; after `delay` seconds give the running ones `timeout` more, then interrupt them."""
        self.draining = True
        time.sleep(delay)
        deadline = time.monotonic() + timeout
        while self._running() and time.monotonic() < deadline:
            self.wait_for_end(0.2)
        self.close()

    @property
    def is_well(self) -> bool:
        """Whether the threads live that journal, recover and follow; without them no answer can be trusted."""
        return all(part.is_alive for part in (self._recovery, self._keeper, self.follower))

    @property
    def active(self) -> int:
        """The runs that this process answers."""
        return len(self._live)

    @property
    def waiting(self) -> int:
        """The questions of this process that wait for their turn."""
        return len(self._queued)

    @property
    def unwritten_for(self) -> float:
        """For how many seconds the oldest event has waited that isn't on disk."""
        waits = filter(None, (run.waits_since for run in self._running()))
        return max(time.monotonic() - min(waits, default=math.inf), 0.0)

    def refuse_when_draining(self) -> None:
        if self.draining:
            raise Unavailable("the server is shutting down; try again", retry_after=5)

    def refuse_new(self) -> None:
        """Raise Unavailable where this process can take no further question."""
        self.refuse_when_draining()
        if self.active + self.waiting >= self.settings.limit:
            raise Unavailable(f"the server answers {self.settings.limit} questions already; try again", retry_after=2)

    def launch(self, start: Start, ask: Callable[[], tuple[Answerer, Question]]) -> LiveRun:
        """Answer in a thread of its own. The run row is active already."""
        run = LiveRun(start, self.owner, self._keeper.wake, before_send=self._before_send, observer=self._observer)
        with self._lock:
            self._live[start.id] = run
        threading.Thread(target=self._answer, args=(run, ask), name=f"run-{start.id}", daemon=True).start()
        return run

    @contextmanager
    def queued(self, run_id: str) -> Iterator[None]:
        """A run of this process that waits for its turn: its lease is kept."""
        with self._lock:
            self._queued.add(run_id)
        try:
            yield
        finally:
            with self._lock:
                self._queued.discard(run_id)

    def find(self, run_id: str) -> LiveRun | None:
        with self._lock:
            return self._live.get(run_id)

    def wait_for_end(self, timeout: float) -> None:
        """Sleep until some run of this process ends, or `timeout` seconds."""
        with self._freed:
            self._freed.wait(timeout)

    def cancel(self, run_id: str) -> None:
        """Stop a run of this process at once; others are reached through their row."""
        run = self.find(run_id)
        if run:
            self._end(run, INTERRUPTED, Outcome.CANCELLED)

    def _stop(self, run: LiveRun, outcome: Outcome = Outcome.CANCELLED) -> None:
        """End a run from outside, in a thread of its own: storing may have to wait for the database."""
        if not run.ending:
            threading.Thread(target=self._end, args=(run, INTERRUPTED, outcome), daemon=True).start()

    def _end(self, run: LiveRun, end: End, outcome: Outcome) -> None:
        try:
            run.end(end, outcome)
        finally:
            if run.tape.over:
                self._forget(run)

    def _forget(self, run: LiveRun) -> None:
        with self._lock:
            self._live.pop(run.start.id, None)
        with self._freed:
            self._freed.notify_all()

    def _answer(self, run: LiveRun, ask: Callable[[], tuple[Answerer, Question]]) -> None:
        structlog.contextvars.bind_contextvars(**run.named)
        try:
            answerer, question = ask()
            end = self._drive(run, answerer.answer(question))
        except ModelFailure as wrong:
            log.warning("model failed", code=wrong.code, detail=wrong.detail)
            end = replace(failure(wrong.code, wrong.message), detail=wrong.detail)
        except Exception as bug:  # the outermost catch: a bug must end its run, not hang it
            log.exception("answering failed")
            end = replace(failure(ErrorCode.INTERNAL_ERROR, "The answer failed by an internal error."),
                          detail=repr(bug))
        self._end(run, end, _OUTCOMES[end.finish_reason])

    def _drive(self, run: LiveRun, events: Iterator[Event]) -> End:
        """Publish until the end; closing the generator closes the model's stream."""
        for event in readable(events):
            if isinstance(event, End):
                return event
            if not run.publish(event):
                break
        return End()

    def _running(self) -> list[LiveRun]:
        with self._lock:
            return list(self._live.values())

    def _waiting(self) -> list[str]:
        with self._lock:
            return list(self._queued)
