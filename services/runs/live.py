"""A run of this process: what its worker says goes to the journal, and from there to the readers."""

import threading
import time
from collections.abc import Callable
from enum import StrEnum

import structlog

from db.database import TROUBLE, connection, retried
from db.document import DocumentMissing
from services.events import End, ErrorCode, Event, FinishReason, ReasoningDelta, TextDelta
from services.observer import Observer
from services.runs import journal
from services.runs.rows import RunService
from services.runs.tape import Tape
from services.runs.values import Outcome, Right, Start
from services.structure_answer import Turn, closing, structure_answer

log = structlog.get_logger()

UNWRITTEN = 256  # events that wait for the journal; a worker that is ahead of it waits too
STORING = 60  # seconds that an answer is tried to be stored
NOT_STORED = "The answer could not be stored."
_DELTAS = (TextDelta, ReasoningDelta)


class NotStored(StrEnum):
    """How a run ended whose answer this process could not store; beside the outcomes of those it could."""

    FAILED = "not_stored"
    DELETED = "deleted"  # with its session
    TAKEN = "taken"  # by a recoverer, when the lease had run out


class LiveRun:
    """Its worker publishes, the keeper writes the journal, anyone ends it: the first one decides."""

    def __init__(
        self, start: Start, owner: str, wake: Callable[[], None], *, before_send: bool = True,
        observer: Observer | None = None,
    ) -> None:
        self.start = start
        self.owner = owner
        self.turn = Turn()
        self.tape = Tape()
        self._before_send = before_send  # readers see nothing that kill -9 could lose
        self._wake = wake
        self._observer = observer or Observer()
        # What a line of the log about it names, the request that asked too.
        self.named = structlog.contextvars.get_contextvars() | {"run_id": start.id, "session_id": start.conversation_id}
        self._log = log.bind(**self.named)
        self._began = time.monotonic()
        self._first_token: float | None = None
        self._deltas = 0
        self._unwritten: list[Event] = []
        self._said_at: list[float] = []  # when each of them was said
        self._written = 0
        self.ending = False
        self._changed = threading.Condition()

    def publish(self, event: Event) -> bool:
        """Take an event from the worker, as fast as the journal does. False once the run is ending."""
        with self._changed:
            self._changed.wait_for(lambda: self.ending or len(self._unwritten) < UNWRITTEN)
            if self.ending:
                return False
            self._add(event)
        self._wake()
        return True

    def _add(self, event: Event) -> None:
        structure_answer(self.turn, event, self.start.turn_id, self.start.conversation_id)
        self._unwritten.append(event)
        self._said_at.append(time.monotonic())
        if not self._before_send:
            self.tape.show([event])

    def unwritten(self) -> tuple[int, list[Event]]:
        """What the journal lacks, and the number of its last event."""
        with self._changed:
            return self._written + len(self._unwritten), list(self._unwritten)

    @property
    def waits_since(self) -> float | None:
        """When the oldest event was said that isn't on disk, on the clock of time.monotonic."""
        return next(iter(self._said_at), None)  # without the lock: asked of every run at every commit

    def wrote(self, count: int) -> None:
        """The journal has the next `count` events: now readers may see them."""
        with self._changed:
            if self.ending:
                return  # the end writes and shows what is left by itself
            self._wrote(count)
            self._changed.notify_all()

    def _wrote(self, count: int) -> None:
        written = self._unwritten[:count]
        self._count(written)
        del self._unwritten[:count], self._said_at[:count]
        self._written += count
        if self._before_send:
            self.tape.show(written)

    def _count(self, written: list[Event]) -> None:
        said_at = [at for event, at in zip(written, self._said_at, strict=False) if isinstance(event, _DELTAS)]
        if said_at and self._first_token is None:
            self._first_token = said_at[0] - self._began
        self._deltas += len(said_at)
        self._observer.deltas_written(len(said_at))

    def end(self, end: End, outcome: Outcome) -> None:
        """Store the turn and then show its end. The first caller decides; later ones change nothing."""
        with self._changed:
            if self.ending:
                return
            for event in closing(self.turn):
                self._add(event)
            self.ending = True
            self._changed.notify_all()
        shown, ended = failure(ErrorCode.INTERNAL_ERROR, NOT_STORED), str(NotStored.FAILED)
        try:
            shown, ended = self._store(end, outcome)
        finally:  # also a bug in storing must not leave a reader waiting
            if shown is end:
                self._wrote(len(self._unwritten))
            self._tell(shown, ended)
            self.tape.show([shown], over=True)

    def _tell(self, shown: End, ended: str) -> None:
        self._observer.run_ended(ended, shown.error_code, self._first_token)
        self._log.info(
            "run ended", outcome=ended, error_code=shown.error_code, deltas=self._deltas,
            first_token_milliseconds=_milliseconds(self._first_token),
            milliseconds=_milliseconds(time.monotonic() - self._began),
        )

    def _store(self, end: End, outcome: Outcome) -> tuple[End, str]:
        """The end that readers see: `end` where the turn is stored, else the error that it isn't. And its name."""
        said = (self._written + len(self._unwritten) + 1, [*self._unwritten, end])
        right = Right.of_owner(self.owner)
        try:
            if retried(lambda: RunService.end(self.start, self.turn, end, outcome, right, said), STORING):
                return end, outcome
            if RunService.outcome_of(self.start.id) == outcome:  # by a try whose connection was lost at its commit
                return end, outcome
        except TROUBLE:
            self._log.exception("answer not stored")
            return failure(ErrorCode.INTERNAL_ERROR, NOT_STORED), NotStored.FAILED
        except DocumentMissing:
            self._erase_journal()
            gone = "The session was deleted while it was being answered."
            return failure(ErrorCode.INTERNAL_ERROR, gone), NotStored.DELETED
        self._log.warning("run was ended by another process")
        return failure(ErrorCode.INTERNAL_ERROR, "The run was ended by another process."), NotStored.TAKEN

    def _erase_journal(self) -> None:
        try:
            with connection():
                journal.erase(self.owner, self.start.id)
        except TROUBLE:
            self._log.warning("journal of a deleted session not erased", exc_info=True)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def failure(code: ErrorCode, message: str) -> End:
    return End(FinishReason.ERROR, error_code=code, error_message=message)
