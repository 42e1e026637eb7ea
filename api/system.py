"""The server itself: is it alive, is it ready, and its page."""

from importlib.resources import files

from flask import Blueprint, Response, abort
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from api.app_state import chatkeep
from api.responses import envelope, success
from conf import __version__
from db.database import connection, fetch

blueprint = Blueprint("system", __name__)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; " \
         "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


@blueprint.get("/")
def page() -> Response:
    """The page: chats, sessions, a question and its cited answer."""
    text = (files("api") / "static" / "index.html").read_text("utf-8")
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff",
               "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
    return Response(text, mimetype="text/html", headers=headers)


@blueprint.get("/healthz")
def healthz() -> Response:
    """The process is alive."""
    return success({"version": __version__})


@blueprint.get("/readyz")
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
def metrics() -> Response:
    """The numbers of this server for Prometheus, without a token; 404 where the settings switch them off."""
    parts = chatkeep()
    if not parts.settings.server.metrics:
        abort(404)
    told = parts.siblings.exposition() if parts.siblings else parts.metrics.exposition()
    return Response(told, content_type=CONTENT_TYPE_PLAIN_0_0_4)
