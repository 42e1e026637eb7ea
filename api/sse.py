"""Server-sent events: the one place that frames events for the wire."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response

from api.responses import dumps
from services.completions import Reading
from services.events import Event

# A protocol's translator: the payloads that one event becomes, none or several.
Translate = Callable[[Event], Iterable[Any]]

KEEP_ALIVE = b": keep-alive\n"  # no blank line: some clients take that for an empty event
HEADERS = {
    "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Content-Type": "text/event-stream; charset=utf-8",
}


def frame(payload: Any, id: str | None = None) -> bytes:
    """One event: its id, where it has one, and its JSON."""
    head = f"id: {id}\n".encode() if id else b""
    return b"%sdata:%s\n\n" % (head, dumps(payload))


def stream(reading: Reading, translate: Translate, *, after: int = 0, silence: float = 15.0) -> Response:
    """Follow a run and print its events. A reader that leaves ends the response, not the run."""
    headers = HEADERS | {"X-Chatkeep-Run": reading.run_id}
    return Response(_frames(reading, translate, after, silence), headers=headers)


def _frames(reading: Reading, translate: Translate, after: int, silence: float) -> Iterator[bytes]:
    yield b""  # the headers go out at once, before the model says a word
    for numbered in reading.follow(after, silence):
        if numbered is None:
            yield KEEP_ALIVE
            continue
        payloads = list(translate(numbered.event))
        yield b"".join(frame(payload, f"{reading.run_id}:{numbered.n}") for payload in payloads)
