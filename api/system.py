"""The server itself: is it alive, is it ready, its page, and its API's document."""

from importlib.resources import files
from typing import Literal

from flask import Blueprint, Response, abort
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.described import described
from api.responses import envelope, success
from conf import __version__
from db.database import connection, fetch

blueprint = Blueprint("system", __name__)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; " \
         "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
HTML, JSON, TEXT = "text/html", "application/json", "text/plain"


class Alive(TypedDict):
    version: str


class Ready(TypedDict):
    database: Literal["ok"]


@blueprint.get("/")
@described(None, media=(HTML,))
def page() -> Response:
    """The page: chats, sessions, a question and its cited answer."""
    return _static("index.html")


@blueprint.get("/docs")
@described(None, media=(HTML,))
def docs() -> Response:
    """This API's document, to read."""
    return _static("docs.html")


@blueprint.get("/openapi.json")
@described(None, media=(JSON,))
def openapi() -> Response:
    """This API's document: OpenAPI 3.1."""
    return Response(chatkeep().openapi(), mimetype=JSON, headers={"Cache-Control": "no-cache"})


def _static(name: str) -> Response:
    text = (files("api") / "static" / name).read_text("utf-8")
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff",
               "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
    return Response(text, mimetype=HTML, headers=headers)


@blueprint.get("/healthz")
@described(Alive)
def healthz() -> Response:
    """The process is alive."""
    return success({"version": __version__})


@blueprint.get("/readyz")
@described(Ready, statuses=(503,))
def readyz() -> Response:
    """Ready for requests: the database answers, runs are kept, and the server isn't shutting down. Else 503."""
    if chatkeep().workers.draining:
        return envelope(503, "the server is shutting down", None, 503)
    if not chatkeep().workers.is_well:
        return envelope(503, "a thread that keeps the runs has ended; restart the server", None, 503)
    with connection():
        fetch("SELECT 1")
    return success({"database": "ok"})


@blueprint.get("/metrics")
@described(None, media=(TEXT,), statuses=(404,))
def metrics() -> Response:
    """The numbers of this server for Prometheus, without a token; 404 where the settings switch them off."""
    parts = chatkeep()
    if not parts.settings.server.metrics:
        abort(404)
    told = parts.siblings.exposition() if parts.siblings else parts.metrics.exposition()
    return Response(told, content_type=CONTENT_TYPE_PLAIN_0_0_4)
