"""What a run has shown so far, in memory, for all its readers together."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from services.events import Event

WINDOW = 512  # events kept for readers; one that falls behind reads the journal


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event and its place in its run, from 1."""

    n: int
    event: Event


class Tape:
    """The newest events of one run. Any number of threads wait for more; none of them owns anything."""

    def __init__(self) -> None:
        self.last = 0  # the number of the newest event shown
        self.over = False
        self._events: deque[Event] = deque(maxlen=WINDOW)
        self._changed = threading.Condition()

    def show(self, events: Sequence[Event], *, over: bool = False) -> None:
        """Show more events; `over` says that none will follow."""
        with self._changed:
            self._events.extend(events)
            self.last += len(events)
            self.over = self.over or over
            self._changed.notify_all()

    def after(self, n: int, timeout: float) -> list[Numbered] | None:
        """The events behind number `n`, waiting for the first up to `timeout` seconds; none if none came or
        the tape is over. None where the next one isn't held any more."""
        with self._changed:
            if self.last <= n and not self.over:
                self._changed.wait(timeout)
            first = self.last - len(self._events) + 1
            if n + 1 < first:
                return None
            return [Numbered(first + at, event) for at, event in enumerate(self._events) if first + at > n]
