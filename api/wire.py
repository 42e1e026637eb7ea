"""How long a client's body is waited for: gunicorn would wait for ever, and each waiting takes a thread."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flask import Response, request
from gunicorn.http.errors import ParseException

from api.app_state import chatkeep

_AT_ONCE = 65_536  # bytes
_REST_SECONDS = 2.0  # that a client may take to send what nobody wants


def read_rest(response: Response) -> Response:
    """Read what a refusal left of the body, as much as any may have and as long as it comes: the server below
    closes a connection with more than a little unread, and the client's next request with it. Only gunicorn's
    input ends where the body does, by WSGI's word."""
    if "gunicorn.socket" not in request.environ:
        return response
    rest, left = request.environ["wsgi.input"], chatkeep().settings.limits.upload_bytes
    until = time.monotonic() + _REST_SECONDS
    with suppress(OSError, ParseException):
        while left > 0:
            with _silence(max(until - time.monotonic(), 0.01)):
                left -= len(rest.read(min(left, _AT_ONCE))) or left
    return response


@contextmanager
def body_awaited() -> Iterator[None]:
    """While the block reads the body. Raises OSError, or what is made of it, where the client falls silent."""
    with _silence(chatkeep().settings.server.body_silence):
        yield


@contextmanager
def _silence(seconds: float) -> Iterator[None]:
    wire = request.environ.get("gunicorn.socket")
    if wire is None:  # another server's
        yield
        return
    before = wire.gettimeout()
    wire.settimeout(seconds)
    try:
        yield
    finally:
        wire.settimeout(before)
