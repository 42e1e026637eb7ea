"""A run of this process: what its worker says goes to the journal, and from there to the readers."""

import threading
from collections.abc import Callable

import structlog

from db.database import TROUBLE, connection, retried
from db.document import DocumentMissing
from services.events import End, ErrorCode, Event, FinishReason
from services.runs import journal
from services.runs.rows import RunService
from services.runs.tape import Tape
from services.runs.values import Outcome, Right, Start
from services.structure_answer import Turn, closing, structure_answer

log = structlog.get_logger()

UNWRITTEN = 256  # events that wait for the journal; a worker that is ahead of it waits too
STORING = 60  # seconds that an answer is tried to be stored
NOT_STORED = "The answer could not be stored."


class LiveRun:
    """Its worker publishes, the keeper writes the journal, anyone ends it: the first one decides."""

    def __init__(self, start: Start, owner: str, wake: Callable[[], None], *, before_send: bool = True) -> None:
        self.start = start
        self.owner = owner
        self.turn = Turn()
        self.tape = Tape()
        self._before_send = before_send  # readers see nothing that kill -9 could lose
        self._wake = wake
        self._unwritten: list[Event] = []
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
        if not self._before_send:
            self.tape.show([event])

    def unwritten(self) -> tuple[int, list[Event]]:
        """What the journal lacks, and the number of its last event."""
        with self._changed:
            return self._written + len(self._unwritten), list(self._unwritten)

    def wrote(self, count: int) -> None:
        """The journal has the next `count` events: now readers may see them."""
        with self._changed:
            if self.ending:
                return  # the end writes and shows what is left by itself
            self._wrote(count)
            self._changed.notify_all()

    def _wrote(self, count: int) -> None:
        written = self._unwritten[:count]
        del self._unwritten[:count]
        self._written += count
        if self._before_send:
            self.tape.show(written)

    def end(self, end: End, outcome: Outcome) -> None:
        """Store the turn and then show its end. The first caller decides; later ones change nothing."""
        with self._changed:
            if self.ending:
                return
            for event in closing(self.turn):
                self._add(event)
            self.ending = True
            self._changed.notify_all()
        shown = failure(ErrorCode.INTERNAL_ERROR, NOT_STORED)
        try:
            shown = self._store(end, outcome)
        finally:  # also a bug in storing must not leave a reader waiting
            if shown is end:
                self._wrote(len(self._unwritten))
            self.tape.show([shown], over=True)

    def _store(self, end: End, outcome: Outcome) -> End:
        """The end that readers see: `end` where the turn is stored, else the error that it isn't."""
        said = (self._written + len(self._unwritten) + 1, [*self._unwritten, end])
        right = Right.of_owner(self.owner)
        try:
            if retried(lambda: RunService.end(self.start, self.turn, end, outcome, right, said), STORING):
                return end
            if RunService.outcome_of(self.start.id) == outcome:  # by a try whose connection was lost at its commit
                return end
        except TROUBLE:
            log.exception("answer not stored", run_id=self.start.id)
            return failure(ErrorCode.INTERNAL_ERROR, NOT_STORED)
        except DocumentMissing:
            self._erase_journal()
            return failure(ErrorCode.INTERNAL_ERROR, "The session was deleted while it was being answered.")
        log.warning("run was ended by another process", run_id=self.start.id)
        return failure(ErrorCode.INTERNAL_ERROR, "The run was ended by another process.")

    def _erase_journal(self) -> None:
        try:
            with connection():
                journal.erase(self.owner, self.start.id)
        except TROUBLE:
            log.warning("journal of a deleted session not erased", run_id=self.start.id, exc_info=True)


def failure(code: ErrorCode, message: str) -> End:
    return End(FinishReason.ERROR, error_code=code, error_message=message)
