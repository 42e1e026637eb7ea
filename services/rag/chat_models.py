"""The models that answer: one port, and an adapter for every server that speaks OpenAI's chat API.

The adapter reads the stream's lines itself (the client's own objects cost 40 times the CPU), and turns
every failure into a ModelFailure: our sentence for anyone, the provider's text for the log, never the key.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, Protocol

import httpx2
import openai
import stamina

from conf.settings import ModelSettings
from db.jsontext import clean
from services.errors import InvalidArgument, ModelFailure
from services.events import ErrorCode, Event
from services.rag.extractive import ExtractiveChatModel
from services.rag.model_stream import Passing, StreamedAnswer, failure, payloads, reported_failure, tells_too_long
from services.rag.prompts import SAMPLING, ModelRequest
from services.rag.stream_deadline import Deadline, Watchdog

__all__ = ["ChatModel", "ExtractiveChatModel", "ModelRequest", "OpenAIChatModel"]

_LONGEST_WAIT = 30.0  # a server that asks for more before a retry has refused
_DRAIN = 2.0  # seconds a finished answer may take to send its usage and close; then its connection serves again
_DETAIL = 2_000  # characters of a provider's text that a log keeps


class ChatModel(Protocol):
    """Anything that answers a request. Ends with an `End`; a failure is a ModelFailure.

    Closing the iterator abandons the answer.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> Iterator[Event]: ...


class OpenAIChatModel:
    """A model behind an OpenAI-compatible server. One instance serves all threads."""

    def __init__(self, settings: ModelSettings) -> None:
        self.name = settings.name
        self._settings = settings
        self._key = settings.api_key.get_secret_value().strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise InvalidArgument("the model's API key has characters that no HTTP header can hold")
        try:
            self._client = openai.OpenAI(
                base_url=settings.base_url, max_retries=0,
                api_key=self._key or "none",  # the client refuses an empty one; servers without keys ignore it
            )
        except httpx2.InvalidURL as error:
            raise InvalidArgument(f"the model's base URL {settings.base_url!r} can't be read: {error}") from None
        self._watchdog = Watchdog()

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        """The answer's events. What fails before the first of them is tried again, where that may help."""
        seconds = min(request.seconds, self._settings.total_timeout)
        until = time.monotonic() + seconds
        for attempt in stamina.retry_context(
            on=_pause, attempts=self._settings.retries + 1, timeout=seconds, wait_initial=0.3
        ):
            with attempt:
                events = self._answer(request, until)
                first = next(events)
        with closing(events):
            yield first
            yield from events

    def _answer(self, request: ModelRequest, until: float) -> Generator[Event, None, None]:
        """One attempt. The provider's exceptions end here."""
        first_due = min(time.monotonic() + self._settings.first_token_timeout, until)
        try:
            with self._open(request, first_due) as opened:
                response = opened.http_response
                self._check_type(response)
                # From here on the watchdog decides; the client's timeout, read when the body begins, is the net.
                longest = max(self._settings.first_token_timeout, self._settings.idle_timeout)
                response.request.extensions["timeout"]["read"] = longest + 1
                with self._watchdog.watch(_socket(response), first_due) as deadline:
                    yield from self._read(response, deadline, until)
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except (openai.APIConnectionError, httpx2.TransportError, httpx2.DecodingError) as error:
            raise self._disconnected(error) from None

    def _open(self, request: ModelRequest, due: float) -> Any:
        """The response as a context: entered at its headers, closed at the end."""
        parameters = {key: request.parameters[key] for key in SAMPLING if key in request.parameters}
        messages: Any = clean(list(map(dict, request.messages)))  # the client can't encode half a surrogate
        return self._client.chat.completions.with_streaming_response.create(
            model=self._settings.name, messages=messages, stream=True,
            stream_options={"include_usage": True}, extra_body=parameters,
            timeout=httpx2.Timeout(max(due - time.monotonic(), 0.01), connect=self._settings.connect_timeout),
        )

    def _read(self, response: httpx2.Response, deadline: Deadline, until: float) -> Iterator[Event]:
        answer = StreamedAnswer()
        try:
            for payload in payloads(self._chunks(response, answer, deadline, until)):
                yield from answer.read(payload)
        except httpx2.TransportError as error:
            if not answer.is_finished and not deadline.passed:
                raise self._broken(error) from None
        except ModelFailure as error:
            error.detail = self._safe(error.detail)
            raise
        if deadline.passed and not answer.is_finished:
            raise failure(ErrorCode.TIMEOUT, f"no more text in time; {'some' if answer.has_begun else 'none'} came")
        yield answer.end()

    def _chunks(
        self, response: httpx2.Response, answer: StreamedAnswer, deadline: Deadline, until: float
    ) -> Iterator[bytes]:
        """The body as it comes. The deadline runs while the model is waited for, not while a reader is slow."""
        chunks = response.iter_bytes()
        first_due = deadline.due
        while True:
            silence = _DRAIN if answer.is_finished else self._settings.idle_timeout
            due = min(time.monotonic() + silence, until) if answer.has_begun else first_due
            self._watchdog.move(deadline, due)
            chunk = next(chunks, None)
            self._watchdog.move(deadline, until)
            if chunk is None:
                return
            yield chunk

    def _check_type(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            text = response.read().decode("utf-8", "replace")
            wrong = reported_failure(text) or failure(ErrorCode.INVALID_RESPONSE, f"content type {kind!r}: {text}")
            wrong.detail = self._safe(wrong.detail)
            raise wrong

    def _refused(self, error: openai.APIStatusError) -> ModelFailure:
        status, text = error.status_code, error.response.text
        code = _code_of_status(status, text)
        detail = self._safe(f"HTTP {status}: {text}")
        if (status == 429 and "insufficient_quota" not in text) or (status >= 500 and code in _MAY_PASS):
            return Passing(code, detail, _retry_after(error.response))
        return failure(code, detail)

    def _broken(self, error: httpx2.TransportError) -> ModelFailure:
        """What a body that breaks off means: cut short is the answer's fault, a reset is the network's."""
        if isinstance(error, httpx2.RemoteProtocolError):
            return Passing(ErrorCode.INVALID_RESPONSE, self._safe(f"the stream broke off: {error}"))
        return self._disconnected(error)

    def _disconnected(self, error: Exception) -> ModelFailure:
        # The client wraps what the connection said; the connection's own errors wrap what nobody needs.
        cause = (isinstance(error, openai.APIConnectionError) and error.__cause__) or error
        detail = self._safe(f"{type(cause).__name__}: {cause}")
        if isinstance(cause, httpx2.ConnectTimeout):
            return Passing(ErrorCode.TIMEOUT, detail)
        if isinstance(cause, httpx2.TimeoutException):
            return failure(ErrorCode.TIMEOUT, detail)
        if isinstance(cause, httpx2.DecodingError):
            return failure(ErrorCode.INVALID_RESPONSE, detail)
        return Passing(ErrorCode.NETWORK_ERROR, detail)

    def _safe(self, text: str) -> str:
        """A provider's text for the log: short, and without the key that some of them repeat."""
        return (text.replace(self._key, "***") if self._key else text)[:_DETAIL]


_MAY_PASS = {ErrorCode.MODEL_ERROR, ErrorCode.SERVICE_UNAVAILABLE}
_STATUS_CODES = {
    402: ErrorCode.RATE_LIMIT, 408: ErrorCode.TIMEOUT, 429: ErrorCode.RATE_LIMIT,
    503: ErrorCode.SERVICE_UNAVAILABLE, 529: ErrorCode.SERVICE_UNAVAILABLE,
}


def _code_of_status(status: int, text: str) -> ErrorCode:
    if status in _STATUS_CODES:
        return _STATUS_CODES[status]
    if status not in (401, 403, 404) and tells_too_long(text):
        return ErrorCode.CONTEXT_TOO_LONG
    if status >= 500:
        return ErrorCode.MODEL_ERROR
    return ErrorCode.INVALID_REQUEST if status >= 400 else ErrorCode.INVALID_RESPONSE


def _pause(error: Exception) -> bool | float:
    """Whether to try again after this failure, or when."""
    if not isinstance(error, Passing):
        return False
    if error.retry_after is None:
        return True
    return error.retry_after if error.retry_after <= _LONGEST_WAIT else False


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds that the server asks to wait; its form as a date is rare here and not read."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _socket(response: httpx2.Response) -> Any:
    stream = response.extensions.get("network_stream")
    return stream.get_extra_info("socket") if stream is not None else None
