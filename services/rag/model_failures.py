"""What goes wrong with a model server: one of the nine codes, our sentence for anyone, its own text for the log.

Which of it may be gone at the next try is said here too, and how long to wait for that. No network in here.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

import httpx2

from services.errors import ModelFailure
from services.events import FILTERED, ErrorCode

_LONGEST_WAIT = 30.0  # a server that asks for more before a retry has refused
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
    r"context[ _-]?(?:length|size|window)|maximum context|(?:prompt|input)\b[^.]{0,40}\bis too (?:long|large)"
    r"|reduce the length", re.IGNORECASE
)
_BY_FILTER = re.compile(
    r'"(?:code|type)"\s*:\s*"(?:content_filter|content_policy_violation|ResponsibleAIPolicyViolation)"'
)
_CODES = {
    402: ErrorCode.RATE_LIMIT, 408: ErrorCode.TIMEOUT, 413: ErrorCode.CONTEXT_TOO_LONG, 429: ErrorCode.RATE_LIMIT,
    501: ErrorCode.INVALID_REQUEST, 503: ErrorCode.SERVICE_UNAVAILABLE, 529: ErrorCode.SERVICE_UNAVAILABLE,
}
_MAY_PASS = {ErrorCode.MODEL_ERROR, ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.TIMEOUT}


class Passing(ModelFailure):
    """A failure that may be gone at the next try, after `retry_after` seconds where the server said so."""

    def __init__(self, code: ErrorCode, detail: str, retry_after: float | None = None) -> None:
        super().__init__(code, _SENTENCES[code], detail)
        self.retry_after = retry_after


def failure(code: ErrorCode, detail: str) -> ModelFailure:
    """A failure with the sentence of its code."""
    return ModelFailure(code, _SENTENCES[code], detail)


def filtered(detail: str) -> ModelFailure:
    """The failure of an answer that the provider's content filter ended, or didn't let begin; no next try mends it."""
    return ModelFailure(ErrorCode.INVALID_REQUEST, FILTERED, detail)


@contextmanager
def too_long(sentence: str) -> Iterator[None]:
    """What was too long in the block for a model, said in the words of whoever sent it."""
    try:
        yield
    except ModelFailure as error:
        if error.code is not ErrorCode.CONTEXT_TOO_LONG:
            raise
        raise ModelFailure(error.code, sentence, error.detail) from error


def passing(code: ErrorCode, detail: str, may_pass: bool) -> ModelFailure:
    """A failure that a next try may mend where `may_pass` says so."""
    return Passing(code, detail) if may_pass else failure(code, detail)


def pause(error: Exception) -> bool | float:
    """Whether to try again after this failure, or in how many seconds."""
    if not isinstance(error, Passing):
        return False
    if error.retry_after is None:
        return True
    return error.retry_after if error.retry_after <= _LONGEST_WAIT else False


def reported(text: str) -> ModelFailure:
    """The failure that an `error` inside a successful answer tells of."""
    if _BY_FILTER.search(text):
        return filtered(text)
    return failure(ErrorCode.CONTEXT_TOO_LONG if tells_too_long(text) else ErrorCode.MODEL_ERROR, text)


def tells_too_long(text: str) -> bool:
    """Whether a provider's text says that the prompt exceeds what the model can read."""
    return _TOO_LONG.search(text) is not None


def refusal(status: int, text: str, headers: Mapping[str, str]) -> ModelFailure:
    """What an answer without success means."""
    code = _code_of(status, text)
    detail = f"HTTP {status}: {text}"
    if code is ErrorCode.INVALID_REQUEST and _BY_FILTER.search(text):
        return filtered(detail)
    if code in _MAY_PASS or (status == 429 and "insufficient_quota" not in text):
        return Passing(code, detail, _retry_after(headers.get("retry-after", "")))
    return failure(code, detail)


def disconnected(error: httpx2.RequestError) -> ModelFailure:
    """What an error of the connection means, before an answer began."""
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, httpx2.TimeoutException):
        return Passing(ErrorCode.TIMEOUT, detail)
    if isinstance(error, httpx2.DecodingError):
        return failure(ErrorCode.INVALID_RESPONSE, detail)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.TooManyRedirects):
        return failure(ErrorCode.NETWORK_ERROR, detail)
    return Passing(ErrorCode.NETWORK_ERROR, detail)


def _code_of(status: int, text: str) -> ErrorCode:
    if status not in (401, 403, 404, 429) and tells_too_long(text):
        return ErrorCode.CONTEXT_TOO_LONG
    if status in _CODES:
        return _CODES[status]
    if status >= 500:
        return ErrorCode.MODEL_ERROR
    return ErrorCode.INVALID_REQUEST if status >= 400 else ErrorCode.INVALID_RESPONSE


def _retry_after(text: str) -> float | None:
    """The seconds that a `Retry-After` asks to wait, given as such or as a date; None where it says nothing."""
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except ValueError:
        return None
