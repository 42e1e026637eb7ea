"""The one place where things are put together: settings in, a WSGI application out."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from flask import Flask
from flask_cors import CORS
from werkzeug.middleware.proxy_fix import ProxyFix

from api import (
    chats,
    chunks,
    completions,
    datasets,
    documents,
    errors,
    models,
    openai_compat,
    recommendations,
    request_log,
    retrieval,
    runs,
    sessions,
    system,
    tokens,
)
from api.app_state import Chatkeep
from api.body import CleanRequest, without_nul
from api.metrics import Metrics
from api.openapi import document
from api.responses import dumps
from api.siblings import Siblings
from api.turns import UPLOADS, Turns
from api.wire import read_rest
from conf.logs import set_up_logs
from conf.settings import Settings
from db.database import database, open_database
from db.migrate import migrate
from services.completions import Completions
from services.knowledge.ingestion import Ingestion
from services.models import ModelDirectory
from services.runs.workers import Workers

BLUEPRINTS = (
    chats.blueprint, sessions.blueprint, completions.blueprint, runs.blueprint, openai_compat.ragflow_blueprint,
    openai_compat.blueprint, datasets.blueprint, documents.blueprint, chunks.blueprint, retrieval.blueprint,
    models.blueprint, recommendations.blueprint, tokens.blueprint, system.blueprint,
)


def create_app(settings: Settings, models: ModelDirectory | None = None, meeting: Path | None = None) -> Flask:
    """A server on a migrated database, with the models of the settings unless others are given.

    `meeting` is the folder in which the worker processes of one server find each other. Starts background threads;
    `close_app` ends them.
    """
    set_up_logs(settings.log_level, settings.secrets)
    open_database(settings)
    migrate(settings)
    metrics = Metrics(database.obj)
    app = Flask(__name__, static_folder=None)
    app.request_class = CleanRequest
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    models = models or ModelDirectory.of(settings)
    workers = Workers(settings, metrics)
    ingestion = Ingestion(settings.ingest, models.find_embedding, metrics)
    metrics.watch(workers, ingestion)
    app.extensions["chatkeep"] = Chatkeep(
        settings, models, workers, Completions(settings, workers, models), ingestion, metrics,
        Siblings(meeting, lambda number: metrics.exposition(worker=number)) if meeting else None,
        cache(lambda: dumps(document(app))), Turns(UPLOADS),
    )
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint, url_prefix=settings.server.base_path + (blueprint.url_prefix or ""))
    errors.install(app)
    app.url_value_preprocessor(_clean_path)
    request_log.install(app)
    app.after_request(read_rest)
    if settings.server.cors_origins:
        CORS(app, origins=settings.server.cors_origins)
    app.wsgi_app = single_slashes(app.wsgi_app)  # type: ignore[method-assign]
    if settings.server.proxies:
        hops = settings.server.proxies
        app.wsgi_app = ProxyFix(app.wsgi_app, hops, hops, hops, hops)  # type: ignore[method-assign]
    workers.open()
    ingestion.open()
    return app


def drain_app(app: Flask) -> None:
    """What SIGTERM asks for: no new questions, time for the running ones, then the rest is interrupted."""
    parts: Chatkeep = app.extensions["chatkeep"]
    parts.workers.drain(parts.settings.server.drain_delay, parts.settings.server.drain_timeout)


def close_app(app: Flask) -> None:
    """Store what is running as interrupted and stop the background threads."""
    parts: Chatkeep = app.extensions["chatkeep"]
    parts.ingestion.close()
    parts.workers.close()
    if parts.siblings:
        parts.siblings.close()


def single_slashes(wsgi_app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """`//` in a path counts as `/`, without a redirect."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        while "//" in path:
            path = path.replace("//", "/")
        environ["PATH_INFO"] = path
        return wsgi_app(environ, start_response)

    return call


def _clean_path(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """An id with U+0000 is an unknown id: no database takes it, and without it it may be another's."""
    if values:
        values.update({name: without_nul(value) for name, value in values.items()})
