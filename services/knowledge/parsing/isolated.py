"""Reading in a process of its own: a hostile file may hang it, crash it or fill its memory, and nothing else.

The processes are kept for the next documents; one that dies is replaced. A file is to blame only for what happens
in a process that is new: one that has read others may suffer from those.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import orjson

from db.jsontext import clean_text
from services.errors import Unavailable, Unreadable
from services.knowledge.parsing.frames import receive, send, too_big
from services.knowledge.parsing.passages import Passage

SECONDS = 60.0  # for a document
MEGABYTES = 1_000  # of memory for a document
_PROCESSES = 2  # at once; further callers wait
_START = 60  # seconds a process may take to start
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "LANG", "LC_ALL", "TMPDIR")
_OUT_OF_MEMORY = (-signal.SIGABRT, -signal.SIGKILL, 127)  # how pdfium, the kernel and the C library end it


class ReaderProcesses:
    """A few processes that read documents for the threads of this one."""

    def __init__(self, most: int = _PROCESSES) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._places = threading.BoundedSemaphore(self._most)
        self._free: list[_Reader] = []  # list methods are atomic
        self._owner = os.getpid()

    def read(
        self, name: str, content: bytes, *, seconds: float = SECONDS, megabytes: int = MEGABYTES
    ) -> list[Passage]:
        """A file's passages in order, read within these limits.

        Raises Unreadable, and Unavailable where no process can be started.
        """
        if self._owner != os.getpid():  # forked: the processes answer to the one before
            self._begin()
        with self._places:
            answer = self._answer({"name": clean_text(name), "seconds": seconds, "megabytes": megabytes}, content)
        if "unreadable" in answer:
            raise Unreadable(answer["unreadable"])
        return [
            Passage(text, heading, page, tuple(map(tuple, positions)))
            for text, heading, page, positions in answer["passages"]
        ]

    def _answer(self, header: dict[str, Any], content: bytes) -> dict[str, Any]:
        while True:
            reader = self._free.pop() if self._free else _Reader()
            was_new = reader.is_new
            answer = reader.ask(header, content)
            if answer is None and was_new:
                raise Unreadable(reader.last_words(header["megabytes"]))
            if answer is not None:
                break
        if answer["last"]:
            reader.close()
        else:
            self._free.append(reader)
        return answer

    def close(self) -> None:
        """End the processes that read nothing now."""
        while self._free:
            self._free.pop().close()


class _Reader:
    """One process, and the socket that is its standard input."""

    def __init__(self) -> None:
        """Raises Unavailable where the process doesn't start."""
        self.is_new = True
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "services.knowledge.parsing.child"],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=_environment(), start_new_session=True,
            )
        try:
            is_ready = receive(self._socket, time.monotonic() + _START) == b"ready"
        except OSError:
            is_ready = False
        if not is_ready:
            self._kill()
            raise Unavailable("No document can be read now: the process for it doesn't start. The log says why.")

    def ask(self, header: dict[str, Any], content: bytes) -> dict[str, Any] | None:
        """What the process makes of a file; None if it died of it. Raises Unreadable when the time is up."""
        self.is_new = False
        deadline = time.monotonic() + header["seconds"]
        answer = b""
        try:
            send(self._socket, orjson.dumps(header), deadline)
            send(self._socket, content, deadline)
            answer = receive(self._socket, deadline)
        except TimeoutError as error:
            raise Unreadable(
                f"The file took longer than {header['seconds']:g} s to read; split or simplify it."
            ) from error
        except OSError:
            pass  # it died: a broken pipe, or a reset
        finally:
            if not answer:
                self._kill()
        return orjson.loads(answer) if answer else None

    def last_words(self, megabytes: int) -> str:
        """Why a process that died did so, for people."""
        if self._process.wait() in _OUT_OF_MEMORY:
            return too_big(megabytes)
        return "The file can't be read: the reader broke down on it, so it is probably damaged."

    def close(self) -> None:
        """End the process; it ends by itself when nobody is at the other end."""
        self._socket.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()


def _environment() -> dict[str, str]:
    """What Python needs to find the same modules; no settings, no credentials."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {"PYTHONPATH": path}
