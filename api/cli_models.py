"""`chatkeep model`: run a small model on this machine, list the configured ones, try each of them."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from api.cli_base import Refusal, json_option, say, sentence_on_error, settings_of
from conf.settings import Endpoint, Settings
from services.errors import InvalidData, ModelFailure
from services.events import ReasoningDelta, TextDelta
from services.models import ModelDirectory, ModelEntry, ModelType, model_id
from services.rag.chat_models import ModelRequest
from services.rag.local_model import NAME, find_weights, serving

QUESTION = "Say hello."
SHOWN = 60  # characters of an answer
_STOPS = {signal.SIGINT, signal.SIGTERM}


@click.group()
def model() -> None:
    """Models: a small one on this machine, and those that answer, embed and rerank.

    \b
    Example: chatkeep model test
    """


@model.command("serve")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65_535), help="Port; 0: a free one.")
@click.option("--embedding-port", type=click.IntRange(0, 65_535), help="Also embed texts there, for tries only.")
@click.option("--weights", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Another .gguf file.")
@sentence_on_error
def serve_model(port: int, embedding_port: int | None, weights: Path | None) -> None:
    """Run a small model on 127.0.0.1 and print the settings that connect to it.

    \b
    Example: chatkeep model serve --port 8080
    """
    path = weights or _find_weights()
    name = NAME if weights is None else path.stem
    with _stopped_by_signal(), ExitStack() as stack:
        _export("MODEL", stack.enter_context(serving(path, port, name)), name)
        if embedding_port is not None:
            _export("EMBEDDING", stack.enter_context(serving(path, embedding_port, name, embeds=True)), name)
        signal.sigwait(_STOPS)


def _find_weights() -> Path:
    """The package's weights. Raises Refusal that names all that is missing."""
    try:
        return find_weights()
    except InvalidData as lacking:
        server = "" if find_spec("xllamacpp") else "; their server is missing too: `pip install xllamacpp`"
        raise Refusal(f"{lacking}{server}") from None


@contextmanager
def _stopped_by_signal() -> Iterator[None]:
    """Holds the signals that stop a program until they are waited for, in every thread that the block starts too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _export(section: str, url: str, name: str) -> None:
    for word, value in (("BASE_URL", url), ("NAME", name), ("API_KEY", "none")):
        click.echo(f"export CHATKEEP_{section}_{word}={value}")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Listed:
    """A configured model as the operator sees it; never its key."""

    name: str
    type: ModelType
    id: str
    upstream: str
    base_url: str
    has_key: bool


@model.command("list")
@json_option
@sentence_on_error
def list_models(as_json: bool) -> None:
    """List the configured models, without keys.

    \b
    Example: chatkeep model list --json
    """
    settings = settings_of()
    rows = [
        Listed(entry.name, type, model_id(entry.name), entry.upstream, where.base_url,
               bool(where.api_key.get_secret_value()))
        for (type, entry), where in zip(ModelDirectory.of(settings), _endpoints(settings), strict=True)
    ]
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows]))
        return
    for row in rows:
        upstream = f" as {row.upstream}" if row.upstream not in ("", row.name) else ""
        where = f"at {row.base_url}{upstream}" if row.base_url else "built in: quotes passages"
        click.echo(f"{row.type:9}  {row.name}  {where}")


def _endpoints(settings: Settings) -> list[Endpoint]:
    """The settings behind each model of the directory, in its order."""
    texts = (settings.embedding, settings.rerank)
    return [settings.model, *settings.models, *(section for section in texts if section.base_url)]


@dataclass(frozen=True, slots=True)
class Tried:
    """What a model answered to something small, or the code and the server's text of its failure."""

    name: str
    type: ModelType
    seconds: float
    result: str | None
    error_code: str | None = None
    detail: str | None = None


@model.command("test")
@click.argument("name", required=False)
@json_option
@sentence_on_error
def test_models(name: str | None, as_json: bool) -> None:
    """Ask each configured model one small thing. Exit code 1 if one fails.

    \b
    Examples: chatkeep model test
              chatkeep model test default
    """
    chosen = [(type, entry) for type, entry in ModelDirectory.of(settings_of())
              if name in (None, entry.name, entry.upstream)]
    if not chosen:
        raise Refusal(f"no model is called {name!r}; `chatkeep model list` shows them")
    tried = []
    for type, entry in chosen:
        tried.append(_try(type, entry))
        if not as_json:
            say(_line(tried[-1]), "yellow" if tried[-1].error_code else None)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in tried]))
    sys.exit(1 if any(one.error_code for one in tried) else 0)


def _try(type: ModelType, entry: ModelEntry[Any]) -> Tried:
    began = time.monotonic()
    try:
        result = TRIES[type](entry.model)
    except ModelFailure as error:
        seconds = round(time.monotonic() - began, 3)
        return Tried(entry.name, type, seconds, None, error.code, f"{error.message} {error.detail}".strip())
    return Tried(entry.name, type, round(time.monotonic() - began, 3), result)


def _line(tried: Tried) -> str:
    told = f"{tried.error_code}: {tried.detail}" if tried.error_code else tried.result
    return f"{'failed' if tried.error_code else 'ok':6}  {tried.type:9}  {tried.name}  {tried.seconds:.2f} s  {told}"


def _chat(chat_model: Any) -> str:
    """The beginning of an answer; the rest isn't waited for."""
    said = ""
    request = ModelRequest([{"role": "user", "content": QUESTION}], QUESTION)
    with closing(chat_model.stream(request)) as events:
        for event in events:
            if isinstance(event, TextDelta | ReasoningDelta):
                said += event.text
            if len(said) >= SHOWN:
                break
    return repr(said[:SHOWN])


def _embed(embedding_model: Any) -> str:
    vectors = embedding_model.embed([QUESTION, "Goodbye."])
    return f"{len(vectors[0])} dimensions"


def _rerank(rerank_model: Any) -> str:
    near, far = rerank_model.scores("What is a cat?", ["A cat is a small animal.", "Paris is a city."])
    return f"{near:.3f} for what answers the question, {far:.3f} for what doesn't"


TRIES = {ModelType.CHAT: _chat, ModelType.EMBEDDING: _embed, ModelType.RERANK: _rerank}
