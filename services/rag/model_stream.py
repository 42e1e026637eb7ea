"""An OpenAI-compatible stream, read: bytes to payloads, payloads to events. No network in here.

An answer is whole when a finish signal came (`finish_reason` or `[DONE]`) and it has text.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from services.errors import ModelFailure
from services.events import End, ErrorCode, Event, FinishReason, ReasoningDelta, TextDelta, Usage

_SENTENCES = {
    ErrorCode.MODEL_ERROR: "The model server reported an error.",
    ErrorCode.TIMEOUT: "The model did not answer in time.",
    ErrorCode.RATE_LIMIT: "The model server refused for now: its rate limit or quota is used up.",
    ErrorCode.CONTEXT_TOO_LONG: "The conversation and its passages are longer than the model can read.",
    ErrorCode.NETWORK_ERROR: "The model server could not be reached.",
    ErrorCode.SERVICE_UNAVAILABLE: "The model server is overloaded or down for now.",
    ErrorCode.INVALID_REQUEST: "The model server refused the request: its address, key or model name may be wrong.",
    ErrorCode.INVALID_RESPONSE: "The model server's answer was empty, broken or incomplete.",
}
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|size|window)|maximum context|(?:prompt|input) is too long|reduce the length", re.IGNORECASE
)
_DONE = b"[DONE]"


class Passing(ModelFailure):
    """A failure that may be gone at the next try, after `retry_after` seconds where the server said so."""

    def __init__(self, code: ErrorCode, detail: str, retry_after: float | None = None) -> None:
        super().__init__(code, _SENTENCES[code], detail)
        self.retry_after = retry_after


def failure(code: ErrorCode, detail: str) -> ModelFailure:
    """A failure with the sentence of its code."""
    return ModelFailure(code, _SENTENCES[code], detail)


def reported_failure(text: str) -> ModelFailure | None:
    """The failure that a JSON text with an `error` tells of; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _reported(text) if isinstance(value, dict) and value.get("error") else None


def _reported(text: str) -> ModelFailure:
    return failure(ErrorCode.CONTEXT_TOO_LONG if tells_too_long(text) else ErrorCode.MODEL_ERROR, text)


def tells_too_long(text: str) -> bool:
    """Whether a provider's text says that the prompt exceeds what the model can read."""
    return _TOO_LONG.search(text) is not None


def payloads(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The value of each `data` line of a stream. Lines end at line feeds only: JSON may hold other line ends."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from _values(lines)
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
        choices = chunk.get("choices") or [{}]
        try:
            choice = choices[0]
            yield from self._delta(choice.get("delta") or {})
            self._end_with(choice.get("finish_reason"))
        except (AttributeError, KeyError, TypeError, IndexError):
            raise _unreadable(payload) from None

    def _delta(self, delta: dict[str, Any]) -> Iterator[Event]:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            self.has_begun = True
            yield ReasoningDelta(reasoning)
        text = delta.get("content")
        if isinstance(text, str) and text:
            self.has_begun = True
            self._has_text = self._has_text or not text.isspace()
            yield TextDelta(text)

    def _end_with(self, reason: str | None) -> None:
        if reason == "content_filter":
            raise failure(ErrorCode.MODEL_ERROR, "stopped by the provider's content filter")
        if reason:
            self._finish = FinishReason.LENGTH if reason == "length" else FinishReason.STOP

    def end(self) -> End:
        """The last event. Raises ModelFailure where the answer isn't whole, or empty."""
        if self._finish is None:
            raise failure(ErrorCode.INVALID_RESPONSE, "the stream ended without a finish signal")
        # A limit that reasoning used up is the limit's doing, not a broken answer.
        if not self._has_text and self._finish is not FinishReason.LENGTH:
            raise failure(ErrorCode.INVALID_RESPONSE, "the answer has no text")
        return End(self._finish, self._usage)


def _decoded(payload: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(payload)
    except orjson.JSONDecodeError:
        chunk = _decoded_leniently(payload)
    if not isinstance(chunk, dict):
        raise _unreadable(payload)
    if chunk.get("error"):
        raise _reported(payload.decode("utf-8", "replace"))
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
    prompt, completion = (count if isinstance(count, int) else 0 for count in counts)
    return Usage(prompt, completion)
