"""The OpenAPI document says what the server does: design.md §7.

Each of its examples is a request that succeeds. That every answer has the shape that it promises is in test_fuzz.py.
"""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from api import app as app_module
from api.openapi import routes_of
from tests.contracts.example_world import World, request_of
from tests.contracts.shared_server import app, models, overrides  # noqa: F401

API = Path(app_module.__file__).parent


@pytest.fixture(scope="module")
def world(app):
    return World.of(app)


@pytest.fixture(scope="module")
def said(app) -> Any:
    return app.test_client().get("/openapi.json").get_json()


def operations(said):
    return [
        (path, method, operation) for path, methods in said["paths"].items() for method, operation in methods.items()
    ]


def test_every_route_is_in_the_document_and_nothing_else(app, said):
    routes = {
        (re.sub(r"<(?:path:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules() for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert {(path, method) for path, method, _ in operations(said)} == routes


def test_every_route_says_what_it_takes_and_answers(app):
    silent = {route.endpoint for route in routes_of(app, "") if not vars(route.view).get("described")}
    assert not silent


def test_it_is_valid_openapi_with_names_that_are_used_once(said):
    schemathesis.openapi.from_dict(said).validate()
    ids = [operation["operationId"] for _, _, operation in operations(said)]
    assert len(ids) == len(set(ids))
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(said)))
    assert referred == set(said["components"]["schemas"])


def test_every_example_is_a_request_that_succeeds(world, said):
    failed = {}
    for path, method, operation in operations(said):
        world.restore()
        answer = world.app.test_client().open(**request_of(path, method, operation), headers=world.headers)
        body = answer.get_json(silent=True) or {}
        if answer.status_code != 200 or body.get("code", 0) != 0:
            failed[operation["operationId"]] = answer.get_data(as_text=True)[:300]
    # A run that has ended can't be stopped, and nothing else is stored under a fixed id.
    assert {name for name in failed if "cancel" in name} == {"runs_cancel", "runs_cancel_in_session"}
    assert not {name: text for name, text in failed.items() if "cancel" not in name}


KEYS = {"get": 0, "flag": slice(1, None), "text_field": 1, "ids_of": 1, "text_of": 1, "_texts": 1, "_number": 1}


def read_keys(path: Path) -> set[str]:
    """The keys that a module reads of a body: `body["x"]`, `"x" in body`, `body.get("x")`, `flag(body, "x")`."""
    keys = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Subscript) and is_body(node.value):
            keys |= texts([node.slice])
        elif isinstance(node, ast.Compare) and is_body(node.comparators[0]):
            keys |= texts([node.left])
        elif isinstance(node, ast.Call) and any(map(is_body, [getattr(node.func, "value", None), *node.args[:1]])):
            keys |= texts(node.args)
    return keys


def is_body(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name) and node.id in ("body", "extra", "nested")


def texts(nodes: Any) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def documented(said: Any) -> set[str]:
    """Every property of a body, wherever it stands in it."""
    bodies = [operation["requestBody"] for _, _, operation in operations(said) if "requestBody" in operation]
    names, waiting, seen = set(), [*bodies], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        if not isinstance(node, dict):
            continue
        names |= set(node.get("properties", {}))
        waiting += node.values()
        name = str(node.get("$ref", "")).rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            waiting.append(said["components"]["schemas"][name])
    return names


def test_every_key_of_a_body_that_a_route_reads_is_documented(said):
    read = set().union(*(read_keys(path) for path in API.glob("*.py")))
    assert {"messages", "dataset_ids", "delete_all", "extra_body", "thumbup"} <= read
    refused = {"tenant_id", "message", "reference"}  # named only to be refused
    without_effect = {"parser_config", "auto_metadata_config", "pagerank"}
    assert read - documented(said) - refused - without_effect == set()


def test_every_query_parameter_that_a_route_reads_is_documented(said):
    source = "".join(path.read_text("utf-8") for path in API.glob("*.py"))
    read = set(re.findall(r'args\.get(?:list)?\("(\w+)"', source)) | set(re.findall(r'_moment\("(\w+)"', source))
    told = {
        one["name"] for _, _, operation in operations(said) for one in operation["parameters"] if one["in"] == "query"
    }
    assert {"page", "orderby", "run", "create_time_to"} <= read
    assert read == told


def test_it_is_read_without_a_token_and_by_a_page_that_loads_nothing_from_elsewhere(app):
    page, document = (app.test_client().get(path) for path in ("/docs", "/openapi.json"))
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert (document.status_code, document.mimetype) == (200, "application/json")
    assert not re.search(r"(?:src|href)=|https?://|import|@import", page.text.replace('href="data:,"', ""))
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_a_token_is_asked_for_where_the_document_says_so_and_nowhere_else(app, said):
    for path, method, operation in operations(said):
        answer = app.test_client().open(**request_of(path, method, operation))
        assert (answer.status_code == 401) is bool(operation["security"]), (method, path)
        assert "401" in operation["responses"] or not operation["security"]
