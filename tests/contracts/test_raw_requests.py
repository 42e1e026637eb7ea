"""Bytes that no schema makes, at every route: broken JSON, odd encodings, forms, paths, queries and headers.

A quarter of FUZZ_REQUESTS are sent to each database; what they may be answered is in judging.py.
"""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.contracts.example_world import TEXT, World
from tests.contracts.judging import Answer, Findings, Judge
from tests.contracts.shared_server import app, models, overrides  # noqa: F401

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "2000")) // 4
SEED = int(os.environ.get("FUZZ_SEED", "0"))

JSON_TYPES = [
    "application/json", "application/json; charset=utf-8", "application/json;charset=utf-16", "APPLICATION/JSON",
]
FORM = "multipart/form-data; boundary=x"
OTHER_TYPES = [
    "application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-7", "multipart/form-data",
    FORM, "multipart/form-data; boundary=" + "x" * 300, "multipart/mixed; boundary=x",
    "text/plain", "application/xml", "application/vnd.api+json", "a/b; charset=no-such", ";", "/", "\x7f", "*/*", "",
]
# Raw JSON in the place of a field.
VALUES = [
    "null", "true", "-0", "-1", "1e999", "-1e-999", "NaN", "-Infinity", "9" * 19, "-" + "9" * 19, "9" * 5_000, "1.5",
    "2147483648", "9223372036854775807", "1e308", '""', '" "', r'"\u0000"', r'"\ud800"', r'"a\udc00\ud800"',
    r'"\uffff"', '"%s"' % ("x" * 300), '"%s"' % ("\u4e2d" * 100_000), '"%00"', r'"..\/..\/"', "\"' OR 1=1 --\"",
    '"{knowledge}"', '"%s %d {0} {}"', "[]", "[[]]", "[null]", "[1, true]", '["", " "]', "[" * 63 + "]" * 63,
    "[" * 65 + "]" * 65, "[" * 50_000, "{}", '{"": ""}', '{"a": {"a": {"a": []}}}', '{"a": 1, "a": 2}',
    '{"key": null, "op": [], "value": {}}', "[%s]" % ", ".join(map(str, range(1_001))),
    "{%s}" % ", ".join(f'"{n}": {n}' for n in range(2_000)), "'x'", "undefined",
]
# Where such a value may stand deeper in a field.
CONDITIONS = [
    '{"conditions": %s}', '{"conditions": [%s]}', '{"conditions": [{"name": %s}]}',
    '{"manual": [{"key": "a", "op": %s}]}',
    '{"conditions": [{"name": "a", "comparison_operator": %s}]}', '{"logic": %s, "conditions": [{"name": "a"}]}',
    '{"conditions": [{"name": "a", "comparison_operator": ">", "value": %s}]}', '{"method": %s}',
]
LISTS = ["ids", "dataset_ids", "document_ids", "chunk_ids", "doc_ids", "questions", "important_keywords"]
DEEPER = dict.fromkeys(LISTS, ("[%s]", '["x", %s]')) | {
    "messages": [
        "[%s]", '[{"role": %s, "content": "x"}]', '[{"role": "user", "content": %s}]',
        '[{"role": "user", "content": "x", "id": %s}]', '[{"role": "user", "content": [{"type": "text", "text": %s}]}]',
        '[{"role": "user", "content": "x", "metadata": %s}]', '[{"role": "user", "content": "x", "created_at": %s}]',
    ],
    "prompt_config": [
        '{"parameters": %s}', '{"parameters": [%s]}', '{"parameters": [{"key": %s}]}', '{"system": %s}',
        '{"quote": %s}', '{"prologue": %s}', '{"empty_response": %s}', '{"refine_multiturn": %s}', '{"tts": %s}',
    ],
    "metadata_condition": CONDITIONS, "meta_data_filter": CONDITIONS, "meta_fields": ['{"a": %s}', '{"a": [%s]}'],
    "llm_setting": ['{"temperature": %s}', '{"max_tokens": %s}'], "reference_metadata": ['{"fields": %s}'],
    "extra_body": ['{"reference": %s}', '{"reference_metadata": %s}', '{"metadata_condition": %s}'],
}
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp037"]
PIECES = [
    "%00", "a%00b", "%FF", "%ED%A0%80", "%F0%9F%98%80", "%E2%80%AE", "x" * 5_000, "%2e%2e", ".", "..%2f..", "%25",
    "%0a", "%0D%0ASet-Cookie:x", "'", "%3Cb%3E", "null", "0", "-1", ";", "a;b=c", "*", "{}", "true", "%E4%B8",
]
HEADERS = ["", "x", "\xff", "x" * 300, "x" * 20_000, "0:0", "a:1e9", "\u00b2", ":", "9" * 30, "%00", "\t"]
DISPOSITIONS = [
    'form-data; name="file"; filename="a.md"', 'form-data; name="file"; filename=""', 'form-data; name="file"',
    'form-data; name="file"; filename="../../a\\b.md"', 'form-data; name="file"; filename="%s"' % ("x" * 300),
    "form-data; name=\"file\"; filename*=UTF-8''%00%ff.md", 'form-data; name="file"; filename="\x00"', "form-data",
    'form-data; name="file"; filename="\xff\xfe"', 'form-data; name="file"; filename=" "', "attachment; name=file", "",
]
PART_HEADERS = ["", "Content-Type: text/plain\r\n", "Content-Length: -1\r\n", "x\r\n", "A: b\r\n" * 200]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def content_of(operation: Any, kind: str) -> Any:
    return operation.get("requestBody", {}).get("content", {}).get(kind, {})


@st.composite
def bodies(draw: Any, example: dict[str, Any], names: list[str]) -> tuple[bytes, str]:
    """A body and its content type; `example` is a sound one, `names` are those of its fields."""
    kind = draw(st.sampled_from(["field", "field", "field", "field", "json", "bytes", "encoding", "type", "cut"]))
    if kind == "json":
        return json.dumps(draw(json_values)).encode("utf-8", "surrogatepass"), JSON_TYPES[0]
    if kind == "bytes":
        return draw(st.binary(max_size=300)), draw(st.sampled_from(JSON_TYPES + OTHER_TYPES))
    sound = json.dumps(example)
    if kind == "encoding":
        return sound.encode(draw(st.sampled_from(ENCODINGS))), draw(st.sampled_from(JSON_TYPES))
    if kind == "type":
        return sound.encode(), draw(st.sampled_from(OTHER_TYPES))
    if kind == "cut":
        where = draw(st.integers(0, len(sound)))
        return sound[:where].encode() + draw(st.binary(max_size=3)) + sound[where + 1 :].encode(), JSON_TYPES[0]
    field = draw(st.sampled_from([*names, "x", "__proto__", ""]))
    value = draw(st.sampled_from(["%s", *DEEPER.get(field, [])])).replace("%s", draw(st.sampled_from(VALUES)))
    return (sound[:-1] + f', {json.dumps(field)}: {value}}}').encode(), draw(st.sampled_from(JSON_TYPES[:2]))


@st.composite
def forms(draw: Any) -> tuple[bytes, str]:
    """A form of files, most of them broken."""
    disposition, header = draw(st.sampled_from(DISPOSITIONS)), draw(st.sampled_from(PART_HEADERS))
    head = f"--x\r\nContent-Disposition: {disposition}\r\n{header}\r\n".encode("latin-1")
    content = draw(st.sampled_from([TEXT.encode(), b"", b"%PDF-1.7", b"\x00" * 100]) | st.binary(max_size=100))
    parts = (head + content + b"\r\n") * draw(st.sampled_from([1, 1, 2, 300]))
    end = draw(st.sampled_from([b"--x--\r\n", b"", b"--x", b"--y--\r\n"]))
    return parts + end, draw(st.sampled_from([FORM] * 4 + OTHER_TYPES))


@st.composite
def requests(draw: Any, path: str, operation: Any, shapes: Any) -> dict[str, Any]:
    """A request to an operation with something odd in its path, query, headers or body."""
    headers, query = {}, ""
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            odd = draw(st.integers(0, 9)) == 0
            path = path.replace("{%s}" % name, draw(st.sampled_from(PIECES)) if odd else parameter["example"])
        elif parameter["in"] == "query" and draw(st.booleans()):
            query += f"&{name}={draw(st.sampled_from(PIECES))}"
        elif parameter["in"] == "header" and draw(st.booleans()):
            headers[name] = draw(st.sampled_from(HEADERS))
    request = {"path": path, "query_string": query[1:], "headers": headers}
    sound = content_of(operation, "application/json")
    if sound:
        names = [*shapes[sound["schema"]["$ref"].rpartition("/")[2]]["properties"]]
        request["data"], request["content_type"] = draw(bodies(sound["example"], names))
    elif content_of(operation, "multipart/form-data"):
        request["data"], request["content_type"] = draw(forms())
    elif draw(st.integers(0, 9)) == 0:
        request["data"], request["content_type"] = draw(bodies({"ids": ["x"]}, ["ids"]))
    return request


def pythons_words(answer: Answer) -> Iterator[str]:
    """No request of these says None, True or False: an answer that does has it from Python."""
    said = answer.json if isinstance(answer.json, dict) else {}
    message = str(said.get("message", ""))
    if re.search(r"\{'|\['|\b(None|True|False)\b", message):
        yield f"Python's words: {message[:80]}"


@pytest.mark.timeout(1_800)
@pytest.mark.filterwarnings("ignore:.*Unclosed file")  # of a form that breaks off: the collector closes it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_bytes_are_answered_by_a_failure(app):
    document = app.test_client().get("/openapi.json").get_json()
    world, judge, findings = World.of(app), Judge(document), Findings()
    operations = [(path, method) for path, methods in document["paths"].items() for method in methods]

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=REQUESTS, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.data())
    def send(data: Any) -> None:
        path, method = data.draw(st.sampled_from(operations))
        request = data.draw(requests(path, document["paths"][path][method], document["components"]["schemas"]))
        answer = _answer(world, method, request)
        told = f"{str(request)[:1500]}\n  {answer.text[:500]}"
        faults = [*judge.faults(path, method, answer), *pythons_words(answer)]
        findings.note(f"{method.upper()} {path}", faults, told)
        if method != "get":
            world.restore()

    send()
    print(f"\n{REQUESTS} raw requests")
    assert not findings.found, str(findings)


def _answer(world: World, method: str, request: dict[str, Any]) -> Answer:
    began = time.monotonic()
    headers = request["headers"] | world.headers
    response = world.app.test_client().open(**request | {"headers": headers}, method=method.upper())
    text = response.get_data(as_text=True)
    return Answer(response.status_code, response.mimetype, text, time.monotonic() - began)
