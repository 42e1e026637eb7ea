"""Errors in OpenAI's words: `{"error": {message, type, param, code}}`; its clients raise by the HTTP status."""

from typing import Any

from flask import Response
from typing_extensions import TypedDict

from api.app_state import under
from api.responses import dumps
from services.events import ErrorCode

_CODES = {
    401: "invalid_api_key", 404: "not_found", 409: "conflict", 413: "request_too_large",
    429: "rate_limit_exceeded", 503: "service_unavailable",
}
# The status of a failed answer; every other failure is the model server's fault, 502.
_STATUSES: dict[str, int] = {
    ErrorCode.RATE_LIMIT: 429, ErrorCode.CONTEXT_TOO_LONG: 400, ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.TIMEOUT: 504, ErrorCode.SERVICE_UNAVAILABLE: 503, ErrorCode.INTERNAL_ERROR: 500,
}
# Clients look for these two; the other codes stay ours.
_WORDS: dict[str, str] = {
    ErrorCode.RATE_LIMIT: "rate_limit_exceeded", ErrorCode.CONTEXT_TOO_LONG: "context_length_exceeded",
}


class OpenAIError(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """A refusal in OpenAI's words."""

    error: OpenAIError


class EnvelopedError(ErrorBody):
    """The same beside RAGFlow's envelope, for OpenAI's clients on RAGFlow's paths."""

    code: int
    message: str
    data: None


def speaks_openai() -> bool:
    """Whether this request came to a path of OpenAI's API, where every error is in its words."""
    return under("/v1")


def openai_refusal(status: int, message: str, *, code: str | None = None, param: str | None = None) -> Response:
    """An error with its status. Outside OpenAI's own paths RAGFlow's envelope stands around it."""
    body: dict[str, Any] = {"error": _error(status, message, code, param)}
    if not speaks_openai():
        body = {"code": status, "message": message, "data": None} | body
    return Response(dumps(body), status, mimetype="application/json")


def failed_answer(error_code: str | None) -> tuple[int, str | None]:
    """Status and code of an answer that failed."""
    code = error_code or ErrorCode.MODEL_ERROR
    return _STATUSES.get(code, 502), _WORDS.get(code, code)


def error_event(error_code: str | None, message: str | None) -> dict[str, Any]:
    """The last event of a stream whose answer failed."""
    status, code = failed_answer(error_code)
    return {"error": _error(status, message or "", code, None)}


def _error(status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    return {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}
