"""The metrics of several worker processes: each counts for itself, and whichever is asked answers for all.

They meet in a folder: a worker holds the lock of its number and listens on a socket beside it. Prometheus' own
mode for several processes would write every count to a file, and can't look anything up when asked.
"""

import fcntl
import re
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO

_PATIENCE = 2.0  # seconds that a sibling may take; one that hangs is left out
_FAMILY = re.compile(rb"(?m)^(?=# HELP )")


class Siblings:
    """This worker among the others. `tell` gives its own metrics, under its number."""

    def __init__(self, folder: Path, tell: Callable[[str], bytes]) -> None:
        self._folder, self._tell = folder, tell
        self.number, self._lock = _first_free(folder)
        self._listener = socket.socket(socket.AF_UNIX)
        self._own.unlink(missing_ok=True)
        self._listener.bind(str(self._own))
        self._listener.listen()
        threading.Thread(target=self._answer, name="metrics", daemon=True).start()

    def exposition(self) -> bytes:
        """The metrics of all workers that answer in time."""
        return merged(filter(None, map(_ask, sorted(self._folder.glob("*.sock")))))

    def close(self) -> None:
        self._own.unlink(missing_ok=True)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()
        self._lock.close()

    @property
    def _own(self) -> Path:
        return self._folder / f"{self.number}.sock"

    def _answer(self) -> None:
        with suppress(OSError):  # closed
            while True:
                asking, _ = self._listener.accept()
                with asking, suppress(OSError):  # it went away
                    asking.settimeout(_PATIENCE)
                    asking.sendall(self._tell(str(self.number)))


def merged(texts: Iterable[bytes]) -> bytes:
    """Expositions as one: a family's lines stand together, under one head."""
    families: dict[bytes, list[bytes]] = {}
    for text in texts:
        for family in _FAMILY.split(text)[1:]:
            about, kind, lines = family.split(b"\n", 2)
            families.setdefault(about + b"\n" + kind + b"\n", []).append(lines)
    return b"".join(head + b"".join(lines) for head, lines in families.items())


def _first_free(folder: Path) -> tuple[int, IO[bytes]]:
    """The lowest number that no living process holds, and its lock, which ends with the process."""
    for number in count():
        lock = (folder / f"{number}.lock").open("wb")
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number, lock
        lock.close()
    raise AssertionError("unreachable")


def _ask(path: Path) -> bytes | None:
    with socket.socket(socket.AF_UNIX) as sibling, suppress(OSError):  # it has just ended, or hangs
        sibling.settimeout(_PATIENCE)
        sibling.connect(str(path))
        return b"".join(iter(lambda: sibling.recv(1 << 16), b""))
    return None
