"""One model server, as its adapters share it: connections, the key, deadlines on whatever it sends, retries.

A timeout of an HTTP client starts anew with every byte; the deadlines here don't, so that nothing trickles for ever.
"""

import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import httpx2
import orjson
import stamina

from conf.logs import Secrets
from conf.settings import Endpoint
from services.errors import InvalidArgument, ModelFailure
from services.events import ErrorCode
from services.rag.model_failures import Passing, disconnected, failure, pause, refusal, reported
from services.rag.stream_deadline import Deadline, Watchdog

_DETAIL = 2_000  # characters of a provider's text that a log keeps
_REFUSAL_TIME = 10.0  # seconds to read why a request was refused
_REFUSAL_BYTES = 64_000
_LONGEST = 64_000_000  # bytes of a whole answer
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


class ModelServer:
    """One instance serves all threads. A refused request is a ModelFailure that `http` raises by itself."""

    def __init__(self, settings: Endpoint) -> None:
        self.key = settings.api_key.get_secret_value().strip()
        if not (self.key.isascii() and self.key.isprintable()):
            raise InvalidArgument("the model's API key has characters that no HTTP header can hold")
        try:
            httpx2.URL(settings.base_url)
        except httpx2.InvalidURL as error:
            raise InvalidArgument(f"the model's base URL {settings.base_url!r} can't be read: {error}") from None
        self._secrets = Secrets([self.key])
        self.watchdog = Watchdog()
        self.http = httpx2.Client(
            event_hooks={"response": [partial(_refuse, self.watchdog)]}, limits=_LIMITS, follow_redirects=True
        )
        self._settings = settings
        weakref.finalize(self, self.http.close)

    @property
    def openai_options(self) -> dict[str, Any]:
        """What makes OpenAI's client one of this server's connections; retries are ours."""
        return {
            "base_url": self._settings.base_url, "max_retries": 0, "http_client": self.http,
            "api_key": self.key or "none",  # the client refuses an empty one; servers without keys ignore it
        }

    def timeout(self, due: float) -> httpx2.Timeout:
        """The HTTP client's own timeout for a request that has until `due`, on the clock of time.monotonic."""
        return httpx2.Timeout(max(due - time.monotonic(), 0.01), connect=self._settings.connect_timeout)

    def attempts(self, timeout: float | None = None) -> Iterator[stamina.Attempt]:
        """Attempts as contexts: what may pass is tried again, as often as the settings say."""
        return iter(stamina.retry_context(
            on=pause, attempts=self._settings.retries + 1, timeout=timeout, wait_initial=0.3
        ))

    def watch(self, response: httpx2.Response, due: float) -> AbstractContextManager[Deadline]:
        """Shut the response's connection when `due` has passed, while the block runs."""
        return self.watchdog.watch(_socket(response), due)

    def answer(self, response: httpx2.Response, due: float) -> dict[str, Any]:
        """A whole JSON answer. Raises ModelFailure where it isn't there in time, or is none, or tells of an error."""
        body = self._body(response, due)
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise failure(ErrorCode.INVALID_RESPONSE, f"no JSON object: {_text(body)}")
        if answer.get("error"):
            raise reported(_text(body))
        return answer

    def _body(self, response: httpx2.Response, due: float) -> bytes:
        body = bytearray()
        with self.watch(response, due) as deadline:
            try:
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _LONGEST:
                        raise failure(ErrorCode.INVALID_RESPONSE, f"more than {_LONGEST} bytes")
            except httpx2.TransportError:
                if not deadline.passed:
                    raise
        if deadline.passed:
            raise Passing(ErrorCode.TIMEOUT, f"{len(body)} bytes came in time")
        return bytes(body)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turns what the connection raises in the block into a ModelFailure.

        Its text for the log is short and without the key, which some servers repeat.
        """
        try:
            yield
        except (httpx2.RequestError, httpx2.DecodingError) as error:
            raise self._safe(disconnected(error)) from None
        except ModelFailure as error:
            raise self._safe(error) from None

    def _safe(self, failed: ModelFailure) -> ModelFailure:
        failed.detail = self._secrets.withheld(failed.detail)[:_DETAIL]
        return failed


def _refuse(watchdog: Watchdog, response: httpx2.Response) -> None:
    """Raises ModelFailure for a response without success, with its text for the log."""
    if response.is_success or response.has_redirect_location:
        return
    text = b""
    with watchdog.watch(_socket(response), time.monotonic() + _REFUSAL_TIME), \
            suppress(httpx2.TransportError, httpx2.DecodingError):  # the status says enough
        for chunk in response.iter_bytes():
            text += chunk
            if len(text) > _REFUSAL_BYTES:
                break
    raise refusal(response.status_code, _text(text), response.headers)


def _text(body: bytes) -> str:
    return body[:_REFUSAL_BYTES].decode("utf-8", "replace")


def _socket(response: httpx2.Response) -> Any:
    stream = response.extensions.get("network_stream")
    return stream.get_extra_info("socket") if stream is not None else None
