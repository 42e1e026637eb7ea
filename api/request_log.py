"""One line of the log for each request, and its numbers. A path is never told, since it may hold a credential."""

import re
import time
from collections.abc import Callable

import structlog
from flask import Flask, Response, g, request
from uuid_utils import uuid7

from api.app_state import chatkeep
from api.metrics import method_label

log = structlog.get_logger()

UNKNOWN = "unknown"
_ID = re.compile(r"[0-9a-f]{32}")


def install(app: Flask) -> None:
    app.before_request(_name_request)
    app.after_request(_sign_response)


def _name_request() -> None:
    g.began = time.perf_counter()
    structlog.contextvars.clear_contextvars()
    given = request.view_args or {}
    ids = {name: given[name] for name in ("session_id", "run_id") if _ID.fullmatch(given.get(name, ""))}
    structlog.contextvars.bind_contextvars(request_id=uuid7().hex, route=_route(), **ids)


def _route() -> str:
    """The route's template, without the base path."""
    if request.url_rule is None:
        return UNKNOWN
    return request.url_rule.rule.removeprefix(chatkeep().settings.server.base_path)


def _sign_response(response: Response) -> Response:
    if "X-Chatkeep-Run" in response.headers:
        structlog.contextvars.bind_contextvars(run_id=response.headers["X-Chatkeep-Run"])
    named = structlog.contextvars.get_contextvars()
    response.headers["X-Request-Id"] = named["request_id"]
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    tell = _teller(response, named["route"])
    if response.is_streamed:
        response.call_on_close(tell)
    else:
        tell()
    return response


def _teller(response: Response, route: str) -> Callable[[], None]:
    """Tells of the request when its answer is over."""
    began, metrics, method, status = g.began, chatkeep().metrics, method_label(request.method), response.status_code
    code = getattr(response, "code", 0 if status < 400 else status)
    told = log.bind(**structlog.contextvars.get_contextvars())

    def tell() -> None:
        seconds = time.perf_counter() - began
        metrics.request_ended(method, route, status, code, seconds)
        told.info("request", method=method, status=status, code=code, milliseconds=round(seconds * 1000, 1))

    return tell
