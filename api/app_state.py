"""What create_app put together, as routes reach it."""

from collections.abc import Callable
from dataclasses import dataclass

from flask import current_app, request

from api.metrics import Metrics
from api.siblings import Siblings
from api.turns import Turns
from conf.settings import Settings
from services.completions import Completions
from services.knowledge.ingestion import Ingestion
from services.models import ModelDirectory
from services.runs.workers import Workers


@dataclass(frozen=True, slots=True)
class Chatkeep:
    settings: Settings
    models: ModelDirectory
    workers: Workers
    completions: Completions
    ingestion: Ingestion
    metrics: Metrics
    siblings: Siblings | None  # of several worker processes
    openapi: Callable[[], bytes]  # the document, made when it is first asked for
    uploads: Turns


def chatkeep() -> Chatkeep:
    """The parts of the running server."""
    parts: Chatkeep = current_app.extensions["chatkeep"]
    return parts


def under(path: str) -> bool:
    """Whether this request's path is this one, seen from the server's base path, or lies below it."""
    return f"{request.path}/".startswith(f"{chatkeep().settings.server.base_path}{path}/")
