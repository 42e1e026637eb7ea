"""The OpenAPI document: made of the url map, of the views' docstrings, and of what is described beside them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from flask import Flask
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from api.auth import authenticate
from api.described import EXAMPLE_IDS, Described, description
from api.openai_errors import EnvelopedError, ErrorBody
from api.responses import Refusal
from conf import __version__
from conf.settings import LimitSettings

JSON, STREAM = "application/json", "text/event-stream"
OURS, OPENAI, OPENAI_CHATS = {"runs", "system"}, "openai", "openai_chats"  # blueprints that aren't RAGFlow's dialect
ABOUT = """\
Chats, their sessions and answers. Every JSON answer is `{code, message, data}`; `code` is 0 where it succeeded. On \
RAGFlow's routes a refusal has HTTP status 200 and its code in the body, but for 401, 409, 413 and 503; on runs and \
on the server's own routes the HTTP status is the right one. OpenAI's routes, below `/v1`, speak OpenAI's words.

A JSON body has at most %(body_bytes)d bytes, nesting of at most %(json_depth)d levels and integers of at most 64 \
bits; U+0000 is dropped from texts. An event stream's events are described by `x-event` beside its schema."""
REFUSED = {
    400: "An argument is wrong.", 401: "No token, or one that isn't valid.", 404: "No such thing among the caller's.",
    409: "Busy with another question, or over.", 413: "More bytes than the limit.",
    429: "The model's limit is used up.", 500: "The answer failed.", 502: "The model failed.",
    503: "Not now: try again after `Retry-After` seconds.", 504: "The model didn't answer in time.",
}
PARAMETERS = {
    "message_id": "The id of a turn: of a question and its answer.", "id_or_secret": "A token's id, or the token.",
}


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `said` is what its view's module describes."""

    path: str
    method: str
    endpoint: str
    blueprint: str
    view: Callable[..., Any]
    said: Described
    guarded: bool

    @property
    def refusal(self) -> Any:
        return self.said.refusal or (ErrorBody if self.blueprint == OPENAI else Refusal)

    @property
    def shapes(self) -> list[Any]:
        said = self.said
        shown = [said.answer, said.body, said.query, said.headers, said.frame, self.refusal, *said.beside.values()]
        return [shape for shape in shown if shape is not None]


class Plain(GenerateJsonSchema):
    """Schemas without titles made of the fields' own names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Schemas:
    """The JSON schemas of some types; those of named types stand in `components` and are referred to."""

    def __init__(self, shapes: Iterable[Any], limits: LimitSettings) -> None:
        adapters = [(shape, "validation", TypeAdapter(shape)) for shape in dict.fromkeys(shapes)]
        made, named = TypeAdapter.json_schemas(
            adapters, ref_template="#/components/schemas/{model}", schema_generator=Plain  # type: ignore[arg-type]
        )
        self._made = {shape: _bounded(schema, limits) for (shape, _), schema in made.items()}
        self.components: dict[str, Any] = _bounded(named.get("$defs", {}), limits)

    def __getitem__(self, shape: Any) -> dict[str, Any]:
        schema: dict[str, Any] = self._made[shape]
        return schema

    def object(self, shape: Any) -> dict[str, Any]:
        """The schema of a named type itself."""
        schema: dict[str, Any] = self.components[self[shape]["$ref"].rpartition("/")[2]]
        return schema


def document(app: Flask) -> dict[str, Any]:
    """The document of this server as it is set up."""
    settings = app.extensions["chatkeep"].settings
    routes = list(routes_of(app, settings.server.base_path))
    always = [Refusal, EnvelopedError, ErrorBody]
    schemas = Schemas([shape for route in routes for shape in route.shapes] + always, settings.limits)
    paths: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for route in routes:
        name = route.endpoint.replace(".", "_")
        seen[name] += 1
        operation = {"operationId": name if seen[name] == 1 else f"{name}_{seen[name]}"}
        paths.setdefault(route.path, {})[route.method] = operation | _operation(route, schemas, settings.limits)
    read = {schemas[shape]["$ref"].rpartition("/")[2] for route in routes
            for shape in (route.said.query, route.said.headers) if shape is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Chatkeep", "version": __version__, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": ABOUT % settings.limits.model_dump(),
        },
        "servers": [{"url": settings.server.base_path or "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(map(_tag, routes))],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.components.items() if name not in read},
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer", "description": "a token of `chatkeep token create`",
            }},
        },
    }


def routes_of(app: Flask, base_path: str) -> Iterator[Route]:
    """Every method of every path, below the base path; HEAD and OPTIONS follow from the others."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions[rule.endpoint]
        blueprint = rule.endpoint.partition(".")[0]
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule.removeprefix(base_path))
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            guarded = authenticate in app.before_request_funcs.get(blueprint, ())
            yield Route(path, method.lower(), rule.endpoint, blueprint, view, description(view), guarded)


def _operation(route: Route, schemas: Schemas, limits: LimitSettings) -> dict[str, Any]:
    told = (getdoc(route.view) or route.endpoint).strip()
    summary, _, rest = told.partition("\n")
    operation = {
        "summary": summary, "tags": [_tag(route)], "security": [{"token": []}] if route.guarded else [],
        "parameters": [*_parameters(route, schemas)], "responses": _responses(route, schemas),
    }
    if rest:
        operation["description"] = told
    if route.said.files:
        file = {"type": "string", "format": "binary"}
        files = {"type": "array", "items": file, "minItems": 1, "maxItems": limits.files}
        form = {"type": "object", "properties": {"file": files}, "required": ["file"]}
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    if route.said.body is not None:
        content = {"schema": schemas[route.said.body], "example": route.said.example}
        whole = schemas.object(route.said.body)
        needed = bool(whole.get("required") or whole.get("anyOf"))
        operation["requestBody"] = {"required": needed, "content": {JSON: content}}
    return operation


def _parameters(route: Route, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", route.path):
        noun = name.removesuffix("_id").replace("_", " ")
        yield {
            "name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1},
            "description": PARAMETERS.get(name, f"The id of a {noun}."), "example": EXAMPLE_IDS.get(name, name),
        }
    for place, shape in (("query", route.said.query), ("header", route.said.headers)):
        fields = schemas.object(shape)["properties"] if shape is not None else {}
        for name, schema in fields.items():
            told = {"description": schema["description"]} if "description" in schema else {}
            yield {"name": name, "in": place, "required": False, "schema": schema} | told


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    said = route.said
    content: dict[str, Any] = {media: {} for media in said.media}
    if said.answer is not None and not said.media:
        content[JSON] = {"schema": _success(route, schemas)}
    if said.frame is not None:
        content[STREAM] = {"schema": {"type": "string"}, "x-event": schemas[said.frame]}
    if route.blueprint not in {*OURS, OPENAI}:
        answers = [content[JSON]["schema"]] if JSON in content else []
        content[JSON] = {"schema": {"anyOf": [*answers, schemas[route.refusal]]}}
    told = "The answer." if route.blueprint in {*OURS, OPENAI} else "The answer, or a refusal with its code."
    return {"200": {"description": told, "content": content}} | {
        str(status): _refused(route, status, schemas) for status in _statuses(route)
    }


def _success(route: Route, schemas: Schemas) -> dict[str, Any]:
    if route.blueprint in (OPENAI, OPENAI_CHATS):
        return schemas[route.said.answer]
    beside = {name: schemas[shape] for name, shape in route.said.beside.items()}
    fields = {"code": {"const": 0}, "message": {"type": "string"}, "data": schemas[route.said.answer]} | beside
    return {"type": "object", "properties": fields, "required": [*fields]}


def _statuses(route: Route) -> list[int]:
    guarded = {401, 503} if route.guarded else set()
    sized = {413} if route.said.files or route.said.body is not None else set()
    return sorted(guarded | sized | {*route.said.statuses})


def _refused(route: Route, status: int, schemas: Schemas) -> dict[str, Any]:
    shape = EnvelopedError if route.blueprint == OPENAI_CHATS and status != 401 else route.refusal
    response: dict[str, Any] = {"description": REFUSED[status], "content": {JSON: {"schema": schemas[shape]}}}
    if status in (409, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
    return response


def _tag(route: Route) -> str:
    return "openai" if route.blueprint == OPENAI_CHATS else route.blueprint


def _bounded(node: Any, limits: LimitSettings) -> Any:
    """The same schema with the values of the limits that it names."""
    if isinstance(node, dict):
        return {key: _bounded(item, limits) for key, item in node.items()}
    if isinstance(node, list):
        return [_bounded(item, limits) for item in node]
    if isinstance(node, str) and node.startswith("limits."):
        return getattr(limits, node.removeprefix("limits."))
    return node
