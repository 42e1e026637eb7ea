"""The process that reads documents for another one, over the socket that is its standard input.

Its main thread only listens: when the other process is gone, however it went, this one ends at once.
"""

import os
import resource
import signal
import socket
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NoReturn

import orjson
import psutil

from services.errors import Unreadable
from services.knowledge.parsing.frames import receive, send, too_big
from services.knowledge.parsing.passages import Passage
from services.knowledge.parsing.reading import read

_GROWTH = 100_000_000  # bytes; a process that kept more than this of what it read has read its last document
_LATER = 2  # seconds after the other process should have ended this one, it ends itself

Request = tuple[dict[str, Any], bytes]


def main() -> None:
    os.nice(10)  # who asks questions goes first
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the other process may have ignored it
    threading.excepthook = _end
    connection = socket.socket(fileno=0)
    requests: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_serve, args=(connection, requests), daemon=True).start()
    send(connection, b"ready")
    with suppress(OSError):
        while header := receive(connection):
            requests.put((orjson.loads(header), receive(connection)))
    os._exit(0)


def _serve(connection: socket.socket, requests: "SimpleQueue[Request]") -> None:
    start = _size()
    while True:
        header, content = requests.get()
        signal.setitimer(signal.ITIMER_REAL, header["seconds"] + _LATER)
        answer = _answer(header, content)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer["last"] = "last" in answer or _size() > start + _GROWTH
        with suppress(OSError):  # nobody wants it any more; the main thread ends this process
            send(connection, orjson.dumps(answer))


def _answer(header: Mapping[str, Any], content: bytes) -> dict[str, Any]:
    _limit_memory(_size() + header["megabytes"] * 1_000_000)
    try:
        return {"passages": [_plain(passage) for passage in read(header["name"], content)]}
    except Unreadable as error:
        return {"unreadable": error.message}
    except MemoryError:
        return {"unreadable": too_big(header["megabytes"]), "last": True}
    finally:
        _limit_memory(None)


def _limit_memory(size: int | None) -> None:
    """Bytes of address space that this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    soft = most if size is None or size > most > 0 else size
    with suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (soft, most))


def _plain(passage: Passage) -> tuple[Any, ...]:
    return passage.content, passage.heading, passage.page, passage.positions


def _size() -> int:
    """Bytes of address space of this process."""
    return int(psutil.Process().memory_info().vms)


def _end(failure: threading.ExceptHookArgs) -> NoReturn:
    """A bug is for the log, and the process is of no use any more."""
    traceback.print_exception(failure.exc_value)
    os._exit(1)


if __name__ == "__main__":
    main()
