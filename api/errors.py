"""What each domain error is on the wire: one table of codes and statuses.

RAGFlow's routes answer HTTP 200 with a code; our own answer with the status itself. Errors that
RAGFlow doesn't know (busy, too large, unavailable) carry their status everywhere. OpenAI's paths have
its words; on RAGFlow's paths for OpenAI's clients they stand beside the envelope where the status isn't 200.
"""

from typing import Any

import structlog
from flask import Flask, Response, g, request
from peewee import InterfaceError, OperationalError
from playhouse.pool import MaxConnectionsExceeded
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from api.app_state import chatkeep, under
from api.body import STRING_BODY, StringBody
from api.openai_errors import openai_refusal, speaks_openai
from api.responses import envelope
from conf.logs import redact
from db.document import DocumentConflict, DocumentMissing, DocumentTooNew
from db.jsontext import IntegerTooBig
from services.errors import (
    Busy,
    ChatkeepError,
    InvalidArgument,
    InvalidData,
    ModelFailure,
    NotFound,
    NotOwned,
    TooLarge,
    Unauthorized,
    Unavailable,
)

log = structlog.get_logger()

UNAUTHORIZED_TEXT = "<Unauthorized '401: Unauthorized'>"  # clients compare it
METHOD_TEXT = "<MethodNotAllowed '405: Method Not Allowed'>"  # and this
OUR_BUG = "The server failed to answer this request. The log has the details under the request id."

# Error, code on RAGFlow's routes, status on ours.
TABLE: tuple[tuple[type[Exception], int, int], ...] = (
    (Unauthorized, 401, 401), (NotOwned, 109, 404), (NotFound, 102, 404), (Busy, 409, 409),
    (TooLarge, 413, 413), (Unavailable, 503, 503), (InvalidArgument, 101, 400), (IntegerTooBig, 101, 400),
    (InvalidData, 102, 422), (ModelFailure, 102, 502), (DocumentMissing, 102, 404),
    (DocumentConflict, 409, 409), (DocumentTooNew, 102, 409),
)
TEXTS = {DocumentMissing: "Session not found!", Unauthorized: UNAUTHORIZED_TEXT}
BUSY_DATABASE = "The database is not reachable right now; try again."
CARRY_STATUS = {401, 409, 413, 503}
# RAGFlow's literals, said to OpenAI's clients.
PLAINLY = {
    UNAUTHORIZED_TEXT: "No valid API key: send a token of this server as `Authorization: Bearer <token>`.",
    STRING_BODY: "The JSON body is a text; it must be an object.",
}


def install(app: Flask) -> None:
    for error, _, _ in TABLE:
        app.register_error_handler(error, on_domain_error)
    for trouble in (OperationalError, InterfaceError, MaxConnectionsExceeded):
        app.register_error_handler(trouble, on_database_trouble)
    app.register_error_handler(StringBody, lambda error: refuse(100, 400, STRING_BODY))
    app.register_error_handler(HTTPException, on_http_error)
    app.register_error_handler(Exception, on_bug)


def on_domain_error(error: Exception) -> Response:
    code, status = next((code, status) for kind, code, status in TABLE if isinstance(error, kind))
    message = next((text for kind, text in TEXTS.items() if isinstance(error, kind)), str(error))
    fields = error.fields if isinstance(error, ChatkeepError) else {}
    return refuse(code, status, message, fields)


def refuse(code: int, status: int, message: str, fields: dict[str, Any] | None = None) -> Response:
    """One refusal in the words of the route it came from."""
    message, fields = redact(message), dict(fields or {})  # it may repeat what stood in the wrong place
    retry_after = fields.pop("retry_after", None)
    if speaks_openai():
        named = {name: fields.get(name) for name in ("code", "param")}
        response = openai_refusal(400 if status == 422 else status, PLAINLY.get(message, message), **named)
    elif request.blueprint == "openai_chats" and (status >= 500 or code in CARRY_STATUS - {401}):
        response = openai_refusal(status, message)
    else:
        response = _envelope(code, status, message, fields)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


def _envelope(code: int, status: int, message: str, fields: dict[str, Any]) -> Response:
    data: Any = False if code == 109 else fields or None
    if request.endpoint in _completion_endpoints() and code not in (401, 404):
        named = g.get("named", {"session_id": None, "id": None})
        data = {"answer": f"**ERROR**: {message}", "reference": []} | named | fields
    if _is_ours():
        code = status
        data = fields or None
    elif code not in CARRY_STATUS:
        status = 200
    return envelope(code, message, data, status)


def on_database_trouble(error: Exception) -> Response:
    log.warning("database trouble", error=type(error).__name__, exc_info=error)
    return refuse(503, 503, BUSY_DATABASE, {"retry_after": 1})


def on_http_error(error: HTTPException) -> Response:
    if speaks_openai():
        status = error.code or 500
        return refuse(status, status, f"Not Found: {_path()}" if status == 404 else str(error.description))
    if isinstance(error, MethodNotAllowed):
        status = 200 if under("/api/v1") else 405
        return envelope(100 if status == 200 else 405, METHOD_TEXT, None, status)
    if isinstance(error, RequestEntityTooLarge):
        return refuse(413, 413, "the body is larger than the limit of this route")
    status = error.code or 500
    if status == 404:
        return envelope(404, f"Not Found: {_path()}", None, 404, error="Not Found")
    return envelope(status, error.description or error.name, None, status)


def _path() -> str:
    """The path that was asked for, without the credentials that it may hold: below this one stands a token."""
    above, tokens, _ = request.path.partition("/api/v1/system/tokens/")
    return redact(f"{above}{tokens}<token>" if tokens else request.path)


def on_bug(error: Exception) -> Response:
    log.error("request failed", exc_info=error)
    chatkeep().metrics.bugs.inc()
    return refuse(100, 500, OUR_BUG)


def _is_ours() -> bool:
    return request.blueprint in {"runs", "system"}


def _completion_endpoints() -> set[str]:
    return {"completions.complete", "completions.complete_in_chat"}
