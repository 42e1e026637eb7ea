"""Server-sent events: the one place that frames events for the wire."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response
from prometheus_client import Gauge

from api.app_state import chatkeep
from api.responses import dumps
from services.events import End, Event
from services.runs.reading import Reading

# A protocol's translator: the payloads that one event becomes, none or several.
Translate = Callable[[Event], Iterable[Any]]

KEEP_ALIVE = b": keep-alive\n"  # no blank line: some clients take that for an empty event
HEADERS = {
    "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Content-Type": "text/event-stream; charset=utf-8",
}
# Many clients end a line wherever Unicode does, and drop what is then half an event. JSON escapes the other ends.
LINE_ENDS = [(sign.encode(), json.dumps(sign).strip('"').encode()) for sign in "\x85\u2028\u2029"]


def frame(payload: Any, id: str | None = None) -> bytes:
    """One event: its id, where it has one, and its JSON, or the bytes that a protocol has in its place."""
    head = f"id: {id}\n".encode() if id else b""
    text = payload if isinstance(payload, bytes) else dumps(payload)
    for sign, escape in LINE_ENDS:
        text = text.replace(sign, escape)
    return b"%sdata:%s\n\n" % (head, text)


def stream(
    reading: Reading, translate: Translate, *, after: float = 0, silence: float = 15.0, with_ids: bool = True
) -> Response:
    """Follow a run and print its events. A reader that leaves ends the response, not the run.

    Events up to number `after` aren't printed again, but for the run's end.
    """
    headers = HEADERS | {"X-Chatkeep-Run": reading.run_id}
    frames = _frames(reading, translate, after, silence, with_ids)
    return Response(_counted(frames, chatkeep().metrics.open_streams), headers=headers)


def _counted(frames: Iterable[bytes], streams: Gauge) -> Iterator[bytes]:
    with streams.track_inprogress():
        yield from frames


def _frames(
    reading: Reading, translate: Translate, after: float, silence: float, with_ids: bool
) -> Iterator[bytes]:
    yield b""  # the headers go out at once, before the model says a word
    for numbered in reading.follow(silence):
        if numbered is None:
            yield KEEP_ALIVE
            continue
        payloads = list(translate(numbered.event))
        if numbered.n > after or isinstance(numbered.event, End):
            id = f"{reading.run_id}:{numbered.n}" if with_ids else None
            yield b"".join(frame(payload, id) for payload in payloads)


def position(last_event_id: str | None, reading: Reading) -> float:
    """The number of the last event that a reader who comes back has seen.

    Where that can't be told (another run's id, no id of ours, a run of which only the answer is left) it is
    infinite: such a reader gets the run's end alone.
    """
    if not last_event_id:
        return 0
    run_id, _, n = last_event_id.rpartition(":")
    known = reading.exact and run_id == reading.run_id and n.isascii() and n.isdecimal() and len(n) < 16
    return int(n) if known else math.inf
