"""The models that answer: one port, and an adapter for every server that speaks OpenAI's chat API.

The adapter reads the stream's lines itself (the client's own objects cost 40 times the CPU), and turns
every failure into a ModelFailure: our sentence for anyone, the provider's text for the log, never the key.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Protocol

import httpx2
import openai

from conf.settings import ModelSettings
from db.jsontext import clean
from services.errors import ModelFailure
from services.events import ErrorCode, Event
from services.rag.extractive import ExtractiveChatModel
from services.rag.model_failures import Passing, passing
from services.rag.model_server import ModelServer
from services.rag.model_stream import StreamedAnswer, answer_payloads
from services.rag.prompts import SAMPLING, ModelRequest
from services.rag.stream_deadline import Deadline

__all__ = ["ChatModel", "ExtractiveChatModel", "ModelRequest", "OpenAIChatModel"]

_DRAIN = 2.0  # seconds a finished answer may take to send its usage and close; then its connection serves again


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
        self._server = ModelServer(settings)
        self._client = openai.OpenAI(**self._server.openai_options)

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        """The answer's events. What fails before the first of them is tried again, where that may help."""
        seconds = min(request.seconds, self._settings.total_timeout)
        until = time.monotonic() + seconds
        for attempt in self._server.attempts(seconds):
            with attempt:
                events = self._answer(request, until)
                first = next(events)
        with closing(events):
            yield first
            yield from events

    def _answer(self, request: ModelRequest, until: float) -> Generator[Event, None, None]:
        """One attempt."""
        first_due = min(time.monotonic() + self._settings.first_token_timeout, until)
        with self._server.translated(), self._open(request, first_due) as response:
            # From here on the watchdog decides; the client's timeout, read when the body begins, is the net.
            longest = max(self._settings.first_token_timeout, self._settings.idle_timeout)
            response.request.extensions["timeout"]["read"] = longest + 1
            with self._server.watch(response, first_due) as deadline:
                yield from self._read(response, deadline, until)

    @contextmanager
    def _open(self, request: ModelRequest, due: float) -> Iterator[httpx2.Response]:
        """The response: entered at its headers, closed at the end."""
        parameters = {key: request.parameters[key] for key in SAMPLING if key in request.parameters}
        messages = clean(list(map(dict, request.messages)))  # the client can't encode half a surrogate
        body = parameters | {"messages": messages}  # as an argument, 200 messages cost the client 14 ms
        try:
            with self._client.chat.completions.with_streaming_response.create(
                model=self._settings.upstream, messages=(), stream=True,
                stream_options={"include_usage": True}, extra_body=body, timeout=self._server.timeout(due),
            ) as opened:
                yield opened.http_response
        except openai.APIConnectionError as error:  # it wraps what the connection said
            raise error.__cause__ or error from None

    def _read(self, response: httpx2.Response, deadline: Deadline, until: float) -> Iterator[Event]:
        answer = StreamedAnswer()
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            for payload in answer_payloads(self._chunks(response, answer, deadline, until), kind):
                yield from answer.read(payload)
        except httpx2.RemoteProtocolError as error:  # cut short is the answer's fault, a reset is the network's
            if not answer.is_finished and not deadline.passed:
                raise Passing(ErrorCode.INVALID_RESPONSE, f"the stream broke off: {error}") from None
        except (httpx2.TransportError, ModelFailure):  # of a finished answer it costs the usage at most
            if not answer.is_finished and not deadline.passed:
                raise
        if deadline.passed and not answer.is_finished:
            said = f"no more text in time; {'some' if answer.has_begun else 'none'} came"
            raise passing(ErrorCode.TIMEOUT, said, not answer.has_begun)
        yield from answer.end()

    def _chunks(
        self, response: httpx2.Response, answer: StreamedAnswer, deadline: Deadline, until: float
    ) -> Iterator[bytes]:
        """The body as it comes. The deadline runs while the model is waited for, not while a reader is slow."""
        chunks = response.iter_bytes()
        first_due = deadline.due
        while True:
            silence = _DRAIN if answer.is_finished else self._settings.idle_timeout
            due = min(time.monotonic() + silence, until) if answer.has_begun else first_due
            self._server.watchdog.move(deadline, due)
            chunk = next(chunks, None)
            self._server.watchdog.move(deadline, until)
            if chunk is None:
                return
            yield chunk
