"""One reader's way through a run's events, wherever the run is: here, elsewhere, or over."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from db.database import TROUBLE, connection
from services.events import End, ErrorCode, Event
from services.runs import journal
from services.runs.live import failure
from services.runs.tape import Numbered, Tape

GONE = "The run is gone: its session was deleted while it was being answered."


@dataclass(frozen=True, slots=True)
class Reading:
    """A run's events from its first one: from a tape that is being recorded, or `stored` ones that end.

    `exact`: the events have the numbers that they had when they were first said. Where only the stored
    answer is left, it comes as one text.
    """

    run_id: str
    session_id: str | None
    turn_id: str
    answered_at: float  # the answer's `created_at`
    tape: Callable[[], AbstractContextManager[Tape]] | None = None
    stored: tuple[Event, ...] = ()
    exact: bool = True

    def follow(self, silence: float = 15.0) -> Iterator[Numbered | None]:
        """Each event once, in order, the last one an End; None for each `silence` seconds without one."""
        if self.tape is None:
            yield from (Numbered(n, event) for n, event in enumerate(self.stored, start=1))
            return
        with self.tape() as tape:
            yield from self._follow(tape, silence)

    def events(self) -> Iterator[Event]:
        """The same without numbers and silences, for a reader that waits for the end anyway."""
        return (numbered.event for numbered in self.follow() if numbered is not None)

    def _follow(self, tape: Tape, silence: float) -> Iterator[Numbered | None]:
        position = 0
        while True:
            said = tape.after(position, silence)
            if said is None:  # this reader fell behind what memory holds
                said = self._journaled(position)
            for each in said:
                position = each.n
                yield each
                if isinstance(each.event, End):
                    return
            if said:
                continue
            if tape.over:
                yield Numbered(position + 1, failure(ErrorCode.INTERNAL_ERROR, GONE))
                return
            yield None

    def _journaled(self, position: int) -> list[Numbered]:
        try:
            with connection():
                return journal.read(self.run_id, position)
        except TROUBLE:
            time.sleep(0.5)
            return []
