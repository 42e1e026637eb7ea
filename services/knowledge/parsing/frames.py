"""What a process that reads and the one that asks have in common: messages of eight bytes of length, then so many."""

import socket
import time

_MOST = 1_000_000_000  # bytes; more is no message of ours


def send(connection: socket.socket, message: bytes, deadline: float | None = None) -> None:
    """Raises TimeoutError at the deadline, a time of `time.monotonic`, and OSError where nobody listens."""
    _limit(connection, deadline)
    connection.sendall(len(message).to_bytes(8, "big"))
    _limit(connection, deadline)
    connection.sendall(message)


def receive(connection: socket.socket, deadline: float | None = None) -> bytes:
    """The next message; an empty one where the other side has ended. Raises TimeoutError, OSError."""
    length = int.from_bytes(_exactly(connection, 8, deadline), "big")
    return _exactly(connection, length, deadline) if length <= _MOST else b""


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    received = bytearray(count)
    view, place = memoryview(received), 0
    while place < count:
        _limit(connection, deadline)
        got = connection.recv_into(view[place:])
        if not got:
            return b""
        place += got
    return bytes(received)


def _limit(connection: socket.socket, deadline: float | None) -> None:
    if deadline is not None:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))


def too_big(megabytes: int) -> str:
    """The sentence for a file that fills the memory that it may have."""
    return f"The file needs more than {megabytes:,} MB of memory to read; split or simplify it."
