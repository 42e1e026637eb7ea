"""What an answer must be, whatever was asked: as the document says, whole, quick, no failure, no words of Python."""

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jsonschema_rs

SECONDS = 2.0
NO_METHOD = "<MethodNotAllowed '405: Method Not Allowed'>"
LITERALS = {
    "AttributeError(\"'str' object has no attribute 'get'\")", "<Unauthorized '401: Unauthorized'>", NO_METHOD,
}
PYTHON = re.compile(r"<class|\w(?:Error|Exception|Warning)\(|Traceback|object at 0x")


@dataclass(frozen=True)
class Answer:
    """An answer as it came, and how long it took."""

    status: int
    media: str
    text: str
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        return _read(self.text) if self.media == "application/json" else None

    @property
    def events(self) -> list[Any]:
        """What an event stream says, each event's JSON read, by a client that ends lines wherever Unicode does."""
        return [_read(line.removeprefix("data:")) for line in self.text.splitlines() if line.startswith("data:")]

    @property
    def verdict(self) -> str:
        """`success`, or the code or HTTP status that refuses."""
        code = self.json.get("code", 0) if isinstance(self.json, dict) else 0
        return str(code or self.status) if code or self.status >= 400 else "success"

    @property
    def is_elsewhere(self) -> bool:
        """Whether the path or the method led to no route."""
        body = self.json if isinstance(self.json, dict) else {}
        message = (body.get("error") if isinstance(body.get("error"), dict) else body).get("message")
        return self.status == 405 or message == NO_METHOD or str(message).startswith("Not Found: ")


@dataclass(frozen=True)
class Judge:
    """Compares answers with an OpenAPI document, whose objects have no other keys than those that it names."""

    document: Any

    def faults(self, path: str, method: str, answer: Answer) -> Iterator[str]:
        """What is wrong with an answer of one of the document's operations, in a few words each."""
        yield from bad_manners(path, answer)
        if answer.is_elsewhere:
            return
        responses = self.document["paths"][path][method]["responses"]
        content = responses.get(str(answer.status), {}).get("content")
        if content is None:
            yield f"HTTP {answer.status} isn't documented"
        elif answer.media not in content:
            yield f"{answer.media} isn't documented"
        else:
            said = answer.events if answer.media == "text/event-stream" else [answer.json]
            form = content[answer.media].get("x-event", content[answer.media].get("schema", {}))
            for each in said:
                wrong = next(self._validator(json.dumps(form)).iter_errors(each), None)
                if wrong is not None:
                    yield f"not as documented: {_deepest(wrong)}"

    @cache  # noqa: B019 (a judge lives as long as its test)
    def _validator(self, schema: str) -> Any:
        components = _closed(self.document["components"])
        return jsonschema_rs.validator_for(_closed(json.loads(schema)) | {"components": components})

    def __hash__(self) -> int:
        return id(self)


@dataclass
class Timed:
    """A WSGI application that knows how long it took for its last answer, to the last byte."""

    app: Any
    seconds: float = 0.0

    def __call__(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        began = time.monotonic()
        body = self.app(environ, start_response)
        yield from body
        body.close()
        self.seconds = time.monotonic() - began


@dataclass
class Findings:
    """Each kind of fault of an operation once, with a request that shows it."""

    found: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, label: str, faults: Iterable[str], shown: str) -> None:
        for fault in faults:
            kind = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "_", fault)[:60]
            self.found.setdefault((label, kind), f"{label}: {fault}\n  {shown}")

    def __str__(self) -> str:
        return "\n\n".join(self.found.values())


def bad_manners(path: str, answer: Answer) -> Iterator[str]:
    """What no answer of any route may be."""
    if answer.seconds > SECONDS:
        yield f"more than {SECONDS} seconds"
    if answer.status >= 500:
        yield f"HTTP {answer.status}"
    said = answer.events if answer.media == "text/event-stream" else [answer.json]
    for each in (each for each in said if isinstance(each, dict) and {"message", "error", "code"} & each.keys()):
        words = each if "message" in each else each.get("error", {})
        message = words.get("message")
        if not isinstance(message, str):
            yield "no message"
        elif message not in LITERALS and (each.get("code") == 100 or PYTHON.search(message)):
            yield f"words of a failure: {message[:80]}"
        if path.startswith("/api/") and not {"code", "message", "data"} <= each.keys():
            yield "half an envelope"


def _read(text: str) -> Any:
    """The value of a JSON text; what is none stands for itself, and has no documented shape but `[DONE]`."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    shut = {"additionalProperties": False} if isinstance(node.get("properties"), dict) else {}
    return shut | {key: _closed(item) for key, item in node.items()}


def _deepest(error: Any) -> str:
    return f"{'/'.join(map(str, error.instance_path))}: {error.message}"[:300]
