"""Work that only so many requests may do at once: the others wait with empty hands."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from services.errors import Unavailable

UPLOADS = 4  # files that are stored at once; each takes a connection, and a multiple of its bytes in memory
_PATIENCE = 30.0  # seconds


class Turns:
    """`most` at once."""

    def __init__(self, most: int, patience: float = _PATIENCE) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._patience = patience

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a place and hold it. Raises Unavailable."""
        if not self._places.acquire(timeout=self._patience):
            raise Unavailable("the server is storing other uploads; try again", retry_after=5)
        try:
            yield
        finally:
            self._places.release()
