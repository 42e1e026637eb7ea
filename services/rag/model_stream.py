"""An OpenAI-compatible stream, read: bytes to payloads, payloads to events. No network in here.

An answer is whole when a finish signal came (`finish_reason` or `[DONE]`) and it has text.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import orjson

from services.errors import ModelFailure
from services.events import End, ErrorCode, Event, FinishReason, ReasoningDelta, TextDelta, Usage
from services.messages import text_of
from services.rag.model_failures import failure, filtered, passing, reported
from services.think_tags import ThinkTags

STREAM = "text/event-stream"
_DONE = b"[DONE]"
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_BLANK = b"\xef\xbb\xbf \t\r\n"  # what may stand before a body's beginning; the first three are a byte order mark
_FIRST_LINE = 65_536  # bytes, more than any line that a stream begins with
_MOST_TOKENS = 2**31 - 1  # of a question or an answer; servers without a count have told -1, and that unsigned
_LONGEST = 8_000_000  # bytes of a stream's line, and of an answer that comes as one JSON text


def answer_payloads(chunks: Iterable[bytes], kind: str) -> Iterator[bytes]:
    """The payloads of a body: a stream's, or the one of a whole answer as JSON.

    Some servers name no content type, or a wrong one, so the body's beginning decides. Raises ModelFailure
    where it is neither.
    """
    chunks = iter(chunks)
    head = b""
    for chunk in chunks:
        head = (head + chunk).lstrip(_BLANK)
        if head and (kind == STREAM or head.startswith(b"{") or b"\n" in head or len(head) > _FIRST_LINE):
            break
    if head.startswith(b"{"):
        yield _whole(head, chunks)
    elif kind == STREAM or _FIELD.match(head):
        yield from payloads(chain([head], chunks))
    else:
        detail = f"content type {kind!r}: {head.decode('utf-8', 'replace')}"
        raise passing(ErrorCode.INVALID_RESPONSE, detail, not head)


def _whole(head: bytes, chunks: Iterable[bytes]) -> bytes:
    body = bytearray(head)
    for chunk in chunks:
        body += chunk
        if len(body) > _LONGEST:
            raise failure(ErrorCode.INVALID_RESPONSE, f"more than {_LONGEST} bytes that are no stream")
    return bytes(body)


def payloads(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The value of each `data` line of a stream. Lines end at line feeds only: JSON may hold other line ends.

    Raises ModelFailure for a line without end.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from _values(lines)
        if len(rest) > _LONGEST:
            raise failure(ErrorCode.INVALID_RESPONSE, f"a line of more than {_LONGEST} bytes")
    yield from _values([rest])


def _values(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            yield value.strip()


class StreamedAnswer:
    """One answer as it comes in."""

    def __init__(self) -> None:
        self.has_begun = False
        self._is_done = False
        self._has_text = False
        self._tags = ThinkTags()
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """A finish signal came: whatever happens to the connection now, the answer is whole."""
        return self._finish is not None

    def read(self, payload: bytes) -> Iterator[Event]:
        """The events of one payload. Raises ModelFailure for an error in it and for what can't be read."""
        if payload == _DONE:
            self._is_done = True
            self._finish = self._finish or FinishReason.STOP
        if self._is_done or not payload:
            return
        chunk = _decoded(payload)
        self._usage = _usage(chunk.get("usage")) or self._usage
        try:
            choices = (choice for choice in chunk.get("choices") or () if not choice.get("index"))
            choice: dict[str, Any] = next(choices, {})  # one answer was asked for: the first
            yield from self._delta(choice.get("delta") or choice.get("message") or {})
            self._end_with(choice.get("finish_reason"))
        except (AttributeError, KeyError, TypeError, IndexError):
            raise _unreadable(payload) from None

    def _delta(self, delta: dict[str, Any]) -> Iterator[Event]:
        for said in _said(delta):
            self.has_begun = True
            yield from self._told(self._tags.split(said))

    def _told(self, deltas: Iterator[Event]) -> Iterator[Event]:
        for delta in deltas:
            self._has_text = self._has_text or (isinstance(delta, TextDelta) and not delta.text.isspace())
            yield delta

    def _end_with(self, reason: str | None) -> None:
        if reason == "content_filter":
            raise filtered("stopped by the provider's content filter")
        if reason:
            self._finish = FinishReason.LENGTH if reason == "length" else FinishReason.STOP

    def end(self) -> Iterator[Event]:
        """The last events. Raises ModelFailure where the answer isn't whole, or empty."""
        yield from self._told(self._tags.end())
        if self._finish is None:
            raise passing(ErrorCode.INVALID_RESPONSE, "the stream ended without a finish signal", not self.has_begun)
        # A limit that reasoning used up is the limit's doing, not a broken answer.
        if not self._has_text and self._finish is not FinishReason.LENGTH:
            raise passing(ErrorCode.INVALID_RESPONSE, "the answer has no text", not self.has_begun)
        yield End(self._finish, self._usage)


def _said(delta: dict[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
    """What is in a delta; its content may be a list of parts, as Mistral's reasoning models write it."""
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        yield ReasoningDelta(reasoning)
    content = delta.get("content") or ()
    if isinstance(content, str):
        yield TextDelta(content)
        return
    for part in content:
        is_thought = part.get("type") == "thinking"
        if text := text_of(part["thinking"] if is_thought else [part], ""):
            yield (ReasoningDelta if is_thought else TextDelta)(text)


def _decoded(payload: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(payload)
    except orjson.JSONDecodeError:
        chunk = _decoded_leniently(payload)
    if not isinstance(chunk, dict):
        raise _unreadable(payload)
    if chunk.get("error"):
        raise reported(payload.decode("utf-8", "replace"))
    return chunk


def _decoded_leniently(payload: bytes) -> Any:
    """The standard library reads what orjson refuses: half a surrogate pair, whose other half comes next."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise _unreadable(payload) from None


def _unreadable(payload: bytes) -> ModelFailure:
    return failure(ErrorCode.INVALID_RESPONSE, f"unreadable: {payload.decode('utf-8', 'replace')}")


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    counts = (value.get("prompt_tokens"), value.get("completion_tokens"))
    prompt, completion = (count if isinstance(count, int) and 0 <= count <= _MOST_TOKENS else 0 for count in counts)
    return Usage(prompt, completion)
