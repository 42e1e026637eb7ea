"""The runs of this process: a thread a run, which owns it, and one that keeps their leases.

Readers only read: they follow a run's events, and one that leaves changes nothing. A run ends in one
place, `LiveRun.end`, whoever asks first; a model that hangs can't hold up its ending.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import stamina
import structlog
from peewee import InterfaceError, OperationalError
from playhouse.pool import MaxConnectionsExceeded

from conf.settings import RunSettings
from db.document import DocumentMissing
from db.jsontext import clean_text
from services.errors import ModelFailure, Unavailable
from services.events import (
    Answerer,
    End,
    ErrorCode,
    Event,
    FinishReason,
    Question,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
)
from services.principal import Principal
from services.run_values import Outcome, Right, Start, this_process
from services.runs import RunService
from services.structure_answer import Turn, structure_answer

log = structlog.get_logger()

DATABASE_TROUBLE = (OperationalError, InterfaceError, MaxConnectionsExceeded)
_STORING = 20  # seconds that a shutdown waits for an answer that is being stored
NOT_STORED = "The answer could not be stored."


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event and its place in its run, from 1."""

    n: int
    event: Event


class LiveRun:
    """One run of this process: its events so far, and those who wait for more."""

    def __init__(self, start: Start, owner: str) -> None:
        self.start = start
        self.owner = owner
        self.turn = Turn()
        self.ended_at: float | None = None
        self._events: list[Event] = []
        self._ending = False
        self._changed = threading.Condition()

    def publish(self, event: Event) -> bool:
        """Show an event to the readers. False once the run is ending: the worker may stop."""
        with self._changed:
            if self._ending:
                return False
            structure_answer(self.turn, event, self.start.turn_id, self.start.conversation_id)
            self._show(event)
        return True

    def end(self, end: End, outcome: Outcome) -> None:
        """Store the turn and then show its end. The first caller decides; later ones change nothing."""
        with self._changed:
            if self._ending:
                return
            self._ending = True
            if self.turn.thinking:
                structure_answer(self.turn, ReasoningEnd(), self.start.turn_id, self.start.conversation_id)
                self._show(ReasoningEnd())
        shown = self._store(end, outcome)
        with self._changed:
            self.ended_at = time.monotonic()
            self._show(shown)

    def _store(self, end: End, outcome: Outcome) -> End:
        try:
            for attempt in stamina.retry_context(on=DATABASE_TROUBLE, attempts=12, timeout=60, wait_max=5):
                with attempt:
                    if RunService.end(self.start, self.turn, end, outcome, Right.of_owner(self.owner)):
                        return end
        except DATABASE_TROUBLE:
            log.exception("answer not stored", run_id=self.start.id)
            return _failure(ErrorCode.INTERNAL_ERROR, NOT_STORED)
        except DocumentMissing:
            return _failure(ErrorCode.INTERNAL_ERROR, "The session was deleted while it was being answered.")
        log.warning("run was ended by another process", run_id=self.start.id)
        return _failure(ErrorCode.INTERNAL_ERROR, "The run was ended by another process.")

    def _show(self, event: Event) -> None:
        self._events.append(event)
        self._changed.notify_all()

    def follow(self, after: int = 0, silence: float = 15.0) -> Iterator[Numbered | None]:
        """The events behind number `after`, each once, as they come; None for each `silence` seconds of none."""
        position = after
        while True:
            with self._changed:
                if len(self._events) <= position and self.ended_at is None:
                    self._changed.wait(silence)
                fresh = self._events[position:]
            if not fresh:
                if self.ended_at is not None:
                    return
                yield None
            for event in fresh:
                position += 1
                yield Numbered(position, event)
                if isinstance(event, End):
                    return


class Workers:
    """Starts runs, keeps their leases, recovers what others lost. One a process; `close` ends it."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.owner = this_process()
        self.draining = False
        self._live: dict[str, LiveRun] = {}
        self._lock = threading.Lock()
        self._freed = threading.Condition()
        self._stopped = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)

    def open(self) -> None:
        """Recover what a former life of this host lost, then keep the leases in the background."""
        RunService.recover(Principal.system())
        self._keeper.start()

    def close(self) -> None:
        """Store what is running as interrupted, and stop."""
        self.draining = True
        running = self._running()
        for run in running:
            self._end(run, End(FinishReason.INTERRUPTED), Outcome.SHUTDOWN)
        deadline = time.monotonic() + _STORING
        while any(run.ended_at is None for run in running) and time.monotonic() < deadline:
            self.wait_for_end(0.05)  # its own worker is storing it just now
        self._stopped.set()
        if self._keeper.is_alive():
            self._keeper.join(5)

    def drain(self, delay: float, timeout: float) -> None:
        """Take no new question; after `delay` seconds give the running ones `timeout` more, then interrupt them."""
        self.draining = True
        time.sleep(delay)
        deadline = time.monotonic() + timeout
        while self._running() and time.monotonic() < deadline:
            self.wait_for_end(0.2)
        self.close()

    def launch(self, start: Start, ask: Callable[[], tuple[Answerer, Question]]) -> LiveRun:
        """Answer in a thread of its own. The run row is active already."""
        run = LiveRun(start, self.owner)
        with self._lock:
            self._live[start.id] = run
        threading.Thread(target=self._answer, args=(run, ask), name=f"run-{start.id}", daemon=True).start()
        return run

    def refuse_when_draining(self) -> None:
        if self.draining:
            raise Unavailable("the server is shutting down; try again", retry_after=5)

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
            self._end(run, End(FinishReason.INTERRUPTED), Outcome.CANCELLED)

    def _end(self, run: LiveRun, end: End, outcome: Outcome) -> None:
        run.end(end, outcome)
        with self._freed:
            self._freed.notify_all()

    def _answer(self, run: LiveRun, ask: Callable[[], tuple[Answerer, Question]]) -> None:
        structlog.contextvars.bind_contextvars(run_id=run.start.id, session_id=run.start.conversation_id)
        try:
            answerer, question = ask()
            end = self._drive(run, answerer.answer(question))
        except ModelFailure as failure:
            log.warning("model failed", code=failure.code, detail=failure.detail)
            end = End(FinishReason.ERROR, error_code=failure.code, error_message=failure.message,
                      detail=failure.detail)
        except Exception as bug:  # the outermost catch: a bug must end its run, not hang it
            log.exception("answering failed")
            end = replace(_failure(ErrorCode.INTERNAL_ERROR, "The answer failed by an internal error."),
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
            return [run for run in self._live.values() if run.ended_at is None]

    def _keep(self) -> None:
        renewed = time.monotonic()
        while not self._stopped.wait(self.settings.poll):
            try:
                self._stop_unwanted()
                if time.monotonic() - renewed >= self.settings.renew:
                    RunService.renew(self.owner, self.settings.lease)
                    RunService.recover(Principal.system())
                    renewed = time.monotonic()
            except DATABASE_TROUBLE:
                log.warning("the database does not answer; leases are not renewed", exc_info=True)
            self._forget()

    def _stop_unwanted(self) -> None:
        running = self._running()
        if not running:
            return
        wanted = RunService.still_wanted(self.owner)
        for run in running:
            if wanted.get(run.start.id, True):  # cancelled, or its row is gone with its session
                self.cancel(run.start.id)

    def _forget(self) -> None:
        oldest = time.monotonic() - self.settings.keep
        with self._lock:
            for run_id in [key for key, run in self._live.items() if run.ended_at and run.ended_at < oldest]:
                del self._live[run_id]


_OUTCOMES = {
    FinishReason.STOP: Outcome.SUCCESS, FinishReason.LENGTH: Outcome.LENGTH,
    FinishReason.ERROR: Outcome.ERROR, FinishReason.INTERRUPTED: Outcome.CANCELLED,
}


def _failure(code: ErrorCode, message: str) -> End:
    return End(FinishReason.ERROR, error_code=code, error_message=message)


def readable(events: Iterable[Event]) -> Iterator[Event]:
    """The same events with clean text, and reasoning between a start and an end.

    A surrogate half at a delta's end waits for the other half.
    """
    held, thinking = "", False
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            reasons = isinstance(event, ReasoningDelta)
            if reasons != thinking:
                if held:
                    yield (ReasoningDelta if thinking else TextDelta)(clean_text(held))
                    held = ""
                yield ReasoningStart() if reasons else ReasoningEnd()
                thinking = reasons
            text = held + event.text
            held = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
            text = clean_text(text[: len(text) - len(held)])
            if text:
                yield type(event)(text)
            continue
        if isinstance(event, End):
            break
        yield event
    else:
        event = End()
    if held:
        yield (ReasoningDelta if thinking else TextDelta)(clean_text(held))
    if thinking:
        yield ReasoningEnd()
    yield event
