"""Deadlines for open responses that move while they are read, which an HTTP client's own timeouts can't.

Past its deadline a response's socket is shut down from outside: the read that waits on it returns at once.
"""

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Deadline:
    """When a response has to have said more; `passed` once its socket was shut down for it."""

    def __init__(self, connection: socket.socket | None, due: float) -> None:
        self.connection = connection
        self.due = due
        self.passed = False

    def shut(self) -> None:
        self.passed = True
        if self.connection is not None:
            with suppress(OSError):  # it may be closed by the peer already
                # The plain socket's own: TLS's would change what the reader is reading with.
                socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class Watchdog:
    """One thread, started with the first response, that keeps the deadlines of all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: set[Deadline] = set()
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(self, connection: socket.socket | None, due: float) -> Iterator[Deadline]:
        """Keep a deadline while the block runs. After it the socket is never touched, whoever has it then."""
        deadline = Deadline(connection, due)
        with self._changed:
            self._open.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="model-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield deadline
        finally:
            with self._changed:
                self._open.discard(deadline)

    def move(self, deadline: Deadline, due: float) -> None:
        """Set another time, on the clock of time.monotonic."""
        with self._changed:
            deadline.due = due
            if due < self._wakes_at:  # else the thread looks in time by itself: no wake-up for each delta
                self._changed.notify()

    def _keep(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for deadline in [deadline for deadline in self._open if deadline.due <= now]:
                    self._open.remove(deadline)
                    deadline.shut()
                self._wakes_at = min((deadline.due for deadline in self._open), default=math.inf)
                self._changed.wait(None if self._wakes_at == math.inf else max(self._wakes_at - now, 0))
