"""Whatever a body holds, the answer is a sentence, nothing fails, and a refusal writes nothing.

design.md §3 (Text), §6 (Limits), §7.2 and §7.4. The routes are those of ROUTES; each says where a client's
text and a client's JSON stand in its body, and how to read back what was stored.
"""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from db.database import connection
from db.ids import new_id
from db.models import Conversation, Dialog, Run
from tests.contracts.shared_server import app, models, overrides, person  # noqa: F401

STRING_BODY = "AttributeError(\"'str' object has no attribute 'get'\")"
LITERALS = {STRING_BODY, "<Unauthorized '401: Unauthorized'>", "<MethodNotAllowed '405: Method Not Allowed'>"}
PYTHON = re.compile(r"\w(Error|Exception)\(|<class |<[\w.]+ object|\{'|\['|\b(None|True|False)\b")
COUNT = itertools.count()


@dataclass(frozen=True)
class Route:
    """A call with a body. `text` and `json` put raw JSON into a sound body; `read` finds it in the answer's data."""

    method: str
    path: str
    text: str
    json: str
    read_text: Callable[[Any], Any] = lambda answered: None
    read_json: Callable[[Any], Any] = lambda answered: None

    def body(self, kind: str, value: str, world: Any) -> str:
        template = getattr(self, kind).replace("@n", str(next(COUNT))).replace("@session", world.session_id)
        return template.replace("@value", value)

    def url(self, world: Any) -> str:
        return self.path.replace("@chat", world.chat_id).replace("@session", world.session_id)


def last_question(key: str) -> Callable[[Any], Any]:
    return lambda session: [entry for entry in session["messages"] if entry["role"] == "user"][-1][key]


def vote(session: Any) -> Any:
    return [entry for entry in session["messages"] if entry.get("id") == "t1"][1]["feedback"]


ONE_SESSION = "/chats/@chat/sessions/@session"
ASK = '{"stream": false, "session_id": "@session", "messages": [{"role": "user", "content": %s, "metadata": %s}]}'
ROUTES = {
    "create chat": Route(
        "POST", "/chats", '{"name": "chat @n", "description": @value}',
        '{"name": "chat @n", "prompt_config": {"x": [@value]}}',
        lambda chat: chat["description"], lambda chat: chat["prompt_config"]["x"]),
    "patch chat": Route(
        "PATCH", "/chats/@chat", '{"description": @value}', '{"llm_setting": {"x": [@value]}}',
        lambda chat: chat["description"], lambda chat: chat["llm_setting"]["x"]),
    "create session": Route(
        "POST", "/chats/@chat/sessions", '{"name": @value}', '{"name": "x", "unread": [@value]}',
        lambda session: session["name"]),
    "patch session": Route(
        "PATCH", ONE_SESSION, '{"name": @value}', '{"name": "x", "id": [@value]}', lambda session: session["name"]),
    "delete sessions": Route(
        "DELETE", "/chats/@chat/sessions", '{"ids": [@value]}', '{"ids": ["unknown"], "unread": [@value]}'),
    "feedback": Route(
        "PUT", f"{ONE_SESSION}/messages/t1/feedback", '{"thumbup": false, "feedback": @value}',
        '{"thumbup": false, "feedback": [@value]}', vote, vote),
    "completions": Route(
        "POST", "/chats/@chat/completions", ASK % ("@value", "{}"), ASK % ('"a question"', '{"x": [@value]}'),
        last_question("content"), lambda session: last_question("metadata")(session)["x"]),
    "completions in a new session": Route(
        "POST", "/chats/@chat/completions", '{"stream": false, "question": @value}',
        '{"stream": false, "question": "q", "unread": [@value]}'),
}
every_route = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
STORED_TEXT = {
    name: ROUTES[name] for name in
    ("create chat", "patch chat", "create session", "patch session", "feedback", "completions")
}
STORED_JSON = {name: ROUTES[name] for name in ("create chat", "patch chat", "feedback", "completions")}


def new_world(app):
    """Alice, her chat, its session with one turn `t1`, and what is stored of her."""
    alice = person(app, f"acme {new_id()}")
    chat = alice.ok("POST", "/chats", {"name": "a chat", "prompt_config": {"prologue": "Welcome."}})
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": "first"})
    question = {"role": "user", "content": "q", "id": "t1"}
    alice.ok("POST", f"/chats/{chat['id']}/completions",
             {"stream": False, "session_id": session["id"], "messages": [question]})
    world = SimpleNamespace(alice=alice, chat_id=chat["id"], session_id=session["id"])
    world.rows = rows(world)
    return world


@pytest.fixture(scope="module")
def world(app):
    """One for all tests of this module: what they store goes with it."""
    return new_world(app)


@pytest.fixture
def world_of_its_own(app):
    return new_world(app)


def rows(world):
    """The chat and the session as they are stored, with times and counters, and how many rows Alice has."""
    mine = world.alice.tenant_id
    with connection():
        return [
            *(row.select().where(row.tenant_id == mine).count() for row in (Dialog, Conversation, Run)),
            Dialog.select().where(Dialog.id == world.chat_id).tuples().get(),
            Conversation.select().where(Conversation.id == world.session_id).tuples().get(),
        ]


def send(world, route, body, content_type="application/json"):
    """The answer to a body, which is sound whatever the body was: and a refusal has written nothing."""
    answer = world.alice(route.method, route.url(world), data=body, content_type=content_type)
    before, world.rows = world.rows, rows(world)
    check(answer)
    assert answer.get_json()["code"] == 0 or world.rows == before
    return answer


def check(answer):
    """Code, message and data, no failure of ours, no word of Python."""
    body, text = answer.get_json(), answer.get_data(as_text=True)
    assert {"code", "message", "data"} <= set(body)
    assert answer.status_code < 500 and not 500 <= body["code"] < 600, text
    assert "Traceback" not in text
    if body["message"] not in LITERALS:
        assert body["code"] != 100, text
        assert body["code"] == 0 or not PYTHON.search(body["message"]), body["message"]


def read_back(world, route, answer):
    """The data of a success; of a completion, the session that it was stored in."""
    body = answer.get_json()
    assert body["code"] == 0, body
    if "/completions" not in route.path:
        return body["data"]
    return world.alice.ok("GET", f"/chats/{world.chat_id}/sessions/{world.session_id}")


# -- text ---------------------------------------------------------------------------------------

TEXTS = {
    "NUL": (r'"a\u0000b"', "ab"),
    "lone high surrogate": (r'"a\ud800b"', "a\ufffdb"),
    "lone low surrogate": (r'"a\udc00b"', "a\ufffdb"),
    "surrogates the wrong way round": (r'"a\ude00\ud83db"', "a\ufffd\ufffdb"),
    "high surrogate at the end": (r'"ab\ud83d"', "ab\ufffd"),
    "a pair of escapes": (r'"a\ud83d\ude00b"', "a\U0001f600b"),
    "a pair around a NUL": (r'"a\ud83d\u0000\ude00b"', "a\U0001f600b"),
    "a raw NUL escape in a script": (r'"a\\u0000b"', "a\\u0000b"),
    "controls": (r'"a\u0001\u001f\u007f\u0085\u2028b"', "a\x01\x1f\x7f\x85\u2028b"),
    "noncharacters": (r'"a\uffff\ufffeb"', "a\uffff\ufffeb"),
}


@pytest.mark.parametrize("route", STORED_TEXT.values(), ids=STORED_TEXT)
@pytest.mark.parametrize(("hostile", "kept"), TEXTS.values(), ids=TEXTS)
def test_hostile_text_is_stored_clean(world, route, hostile, kept):
    answer = send(world, route, route.body("text", hostile, world))
    assert route.read_text(read_back(world, route, answer)) == kept


@pytest.mark.parametrize("hostile", [r'"\u0000"', r'"\ud800"', r'" \u0000 "'], ids=["NUL", "surrogate", "blank NUL"])
@every_route
def test_a_text_of_nothing_else_is_handled(world, route, hostile):
    send(world, route, route.body("text", hostile, world))


def test_a_hostile_id_is_named_clean(world):
    answer = send(world, ROUTES["delete sessions"], r'{"ids": ["a\u0000\ud800b"]}')
    assert answer.get_json()["message"] == "The chat doesn't own the session a\ufffdb"


@every_route
def test_hostile_keys_are_handled(world, route):
    body = json.loads(route.body("json", "1", world)) | {"a\x00b": 1, "\ud800": 2, "": 3, "x" * 10_000: 4}
    send(world, route, json.dumps(body))


@every_route
def test_a_megabyte_of_text_is_handled(world_of_its_own, route):
    for text in ("x" * 1_000_000, "\u4e2d" * 300_000):
        send(world_of_its_own, route, route.body("text", json.dumps(text), world_of_its_own))


# -- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", STORED_JSON.values(), ids=STORED_JSON)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_json_does_not_know_becomes_null(world, route, number):
    answer = send(world, route, route.body("json", f'{number}, {{"deep": {number}}}', world))
    assert route.read_json(read_back(world, route, answer)) == [None, {"deep": None}]


@pytest.mark.parametrize("route", STORED_JSON.values(), ids=STORED_JSON)
def test_integers_of_64_bits_are_kept(world, route):
    numbers = [2**63 - 1, -(2**63), 2**53 + 1]
    answer = send(world, route, route.body("json", ", ".join(map(str, numbers)), world))
    assert route.read_json(read_back(world, route, answer)) == numbers


@every_route
@pytest.mark.parametrize("integer", [str(2**64), str(-(2**64)), "9" * 5_000, "-" + "9" * 5_000, "1" * 300_000],
                         ids=["65 bits", "minus 65 bits", "5000 digits", "minus 5000 digits", "300000 digits"])
def test_an_integer_beyond_64_bits_is_an_argument_error(world, route, integer):
    for kind in ("text", "json"):
        answer = send(world, route, route.body(kind, integer, world))
        assert (answer.status_code, answer.get_json()["code"]) == (200, 101)
        assert len(answer.get_json()["message"]) < 500


# -- depth and size -----------------------------------------------------------------------------


@every_route
@pytest.mark.parametrize("leaf", ["", "1"], ids=["empty", "a number"])
@pytest.mark.parametrize("depth", [65, 66, 100_000])
def test_json_deeper_than_64_levels_is_an_argument_error(world, route, depth, leaf):
    deep = "[" * (depth - 1) + leaf + "]" * (depth - 1)
    answer = send(world, route, route.body("json", "1", world)[:-1] + f', "deep": {deep}}}')
    assert (answer.status_code, answer.get_json()["code"]) == (200, 101)
    assert "64" in answer.get_json()["message"]


@pytest.mark.parametrize("leaf", ["", "1"], ids=["empty", "a number"])
def test_json_of_64_levels_is_kept(world, leaf):
    deep = "[" * 63 + leaf + "]" * 63
    answer = send(world, ROUTES["feedback"], f'{{"thumbup": false, "feedback": {deep}}}')
    assert read_back(world, ROUTES["feedback"], answer)["messages"][2]["feedback"] == json.loads(deep)


@every_route
def test_a_body_over_two_megabytes_is_413(world, route):
    answer = send(world, route, route.body("text", json.dumps("x" * 2_000_001), world))
    assert (answer.status_code, answer.get_json()["code"]) == (413, 413)


@every_route
def test_a_form_over_two_megabytes_is_413(world, route):
    answer = send(world, route, "name=" + "x" * 2_000_001, "application/x-www-form-urlencoded")
    assert (answer.status_code, answer.get_json()["code"]) == (413, 413)


# -- bodies that are no JSON object -------------------------------------------------------------

NO_OBJECTS = {
    "empty array": b"[]", "array": b'[{"name": "x"}]', "null": b"null", "number": b"1", "true": b"true",
    "not json": b"not json", "half": b'{"name": ', "single quotes": b"{'name': 'x'}", "two": b'{"a": 1} {}',
    "comma at the end": b'{"name": "x",}', "no quotes": b"{name: 1}", "invalid utf-8": b'{"name": "\xff\xfe"}',
    "cut utf-8": b'{"name": "\xe4\xb8"}', "raw control": b'{"name": "a\nb"}', "bom and nothing": b"\xef\xbb\xbf",
    "bad escape": rb'{"name": "\u12"}',
}


@every_route
@pytest.mark.parametrize("body", NO_OBJECTS.values(), ids=NO_OBJECTS)
def test_a_body_that_is_no_json_object_is_an_argument_error(world, route, body):
    answer = send(world, route, body)
    assert (answer.status_code, answer.get_json()["code"]) == (200, 101)


@every_route
def test_a_json_text_is_ragflows_literal(world, route):
    answer = send(world, route, '"not json"')
    assert (answer.status_code, answer.get_json()["code"], answer.get_json()["message"]) == (200, 100, STRING_BODY)


@every_route
def test_another_content_type_is_an_argument_error(world, route):
    for content_type in ("text/plain", None, "application/xml", "text/json; charset=utf-8", "nonsense", ";"):
        answer = send(world, route, route.body("text", '"x"', world), content_type)
        assert (content_type, answer.status_code, answer.get_json()["code"]) == (content_type, 200, 101)


@every_route
@pytest.mark.parametrize("content_type", [
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "multipart/form-data",
])
def test_a_form_is_handled(world, route, content_type):
    for body in ("name=f&ids=1&thumbup=true&question=q&stream=false", "name=%00%ED%A0%80", "=&&=", "--x\r\n\r\n", ""):
        send(world, route, body, content_type)


@every_route
@pytest.mark.parametrize("charset", ["", "; charset=utf-7", "; charset=latin-1"])
def test_a_form_that_is_no_utf8_is_an_argument_error(world, route, charset):
    for body in (b"name=\xff\xfe", b"J\xbf\x1d", b"\xb5H&question=q"):
        answer = send(world, route, body, f"application/x-www-form-urlencoded{charset}")
        assert (body, answer.status_code, answer.get_json()["code"]) == (body, 200, 101)


@every_route
def test_a_charset_beside_the_content_type_is_fine(world, route):
    body = route.body("text", '"x"', world)
    plain, named = (send(world, route, body, f"application/json{more}").get_json() for more in ("", "; charset=utf-8"))
    assert "Content-Type" not in named["message"]
    assert plain["code"] == named["code"] or route.path == "/chats"


# -- fields of the wrong type -------------------------------------------------------------------

ODD = [None, True, -1.5, 2**31, "", "1e999", "x" * 300, [None], [{}], {"a": None}]
SWITCHES = ["legacy", "pass_all_history_messages", "store_history_messages"]
FIELDS = {
    "create chat": ["name", "dataset_ids", "llm_id", "tenant_llm_id", "rerank_id", "tenant_rerank_id", "prompt_config",
                    "prompt_config.parameters", "prompt_config.system", "prompt_config.prologue", "llm_setting",
                    "meta_data_filter", "similarity_threshold", "vector_similarity_weight", "top_n", "top_k",
                    "description", "icon", "language", "prompt_type", "do_refer", "tenant_id", "status", "kb_ids"],
    "create session": ["name", "user_id", "messages"],
    "patch session": ["name", "messages", "reference", "user_id", "unknown"],
    "delete sessions": ["ids"],
    "feedback": ["thumbup", "feedback", "set"],
    "completions": [*SWITCHES, "chat_id", "session_id", "conversation_id", "question", "messages", "messages.0",
                    "messages.0.role", "messages.0.content", "messages.0.id", "messages.0.files", "messages.0.seq",
                    "messages.0.doc_ids", "llm_id", "on_conflict", "quote", "doc_ids",
                    "temperature", "max_tokens", "files"],
    "completions in a new session": ["question", "user_id", "on_conflict", "session_id", "files", "doc_ids"],
}
FIELDS["patch chat"] = ["name", "dataset_ids", "llm_id", "rerank_id", "prompt_config", "llm_setting", "top_n", "icon"]
ALL_FIELDS = [
    pytest.param(ROUTES[name], field, id=f"{name} {field}") for name, fields in FIELDS.items() for field in fields
]


def with_field(body, field, value):
    """The body with one field, reached by dots, set to a value."""
    *way, key = (int(step) if step.isdigit() else step for step in field.split("."))
    place = body
    for step in way:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    place[key] = value
    return body


@pytest.mark.parametrize(("route", "field"), ALL_FIELDS)
def test_a_field_of_any_type_is_taken_or_refused_with_a_sentence(world, route, field):
    for value in ODD[::2] if "completions" in route.path else ODD:
        body = with_field(json.loads(route.body("text", '"x"', world)), field, value)
        answer = send(world, route, json.dumps(body))
        assert answer.status_code == 200, (value, answer.get_data(as_text=True))


@pytest.mark.parametrize(("route", "field", "value"), [
    ("create chat", "dataset_ids", [{"a": 1}]), ("create chat", "dataset_ids", [["x"]]),
    ("create chat", "prompt_config", {"parameters": [{"key": {"a": 1}}, {"key": {"a": 1}}]}),
    ("create chat", "prompt_config", {"parameters": [{"key": ["x"]}, {"key": ["x"]}]}),
    ("completions", "messages.0.role", {"a": 1}), ("completions", "messages.0.role", ["user"]),
    ("completions", "messages.0.role", None), ("completions", "messages.0.role", True),
    ("completions", "on_conflict", {"a": 1}), ("completions", "session_id", {"a": 1}),
    ("completions", "messages", [{"role": {"a": None}, "content": "x"}, {"role": "user", "content": "y"}]),
    *(("completions", "doc_ids", value) for value in (True, 5, 1.5, {"a": 1}, [{}], ["x", None], [["a"]])),
    *(("create chat", f"prompt_config.{name}", value) for name in ("prologue", "empty_response", "system")
      for value in ({"a": None}, [None])),
], ids=str)
def test_a_refused_value_is_not_shown_in_pythons_words(world, route, field, value):
    body = with_field(json.loads(ROUTES[route].body("text", '"x"', world)), field, value)
    assert send(world, ROUTES[route], json.dumps(body)).get_json()["code"] in (101, 102)


def test_a_long_list_takes_no_time_to_be_looked_through(world):
    """Two megabytes of parameters, of dataset ids, of messages: each is one pass, or a refusal."""
    many, names = [{"key": "%x" % n} for n in range(100_000)], [str(n) for n in range(100_000)]
    began = time.monotonic()
    for route, field, value in (
        ("create chat", "prompt_config.parameters", many), ("create chat", "dataset_ids", names),
        ("completions", "messages", [{"role": "user", "content": "q"}] * 10_001),
    ):
        body = with_field(json.loads(ROUTES[route].body("text", '"x"', world)), field, value)
        assert send(world, ROUTES[route], json.dumps(body)).get_json()["code"] in (0, 101)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("old_form", [{"a": 1}, ["x"], 1, True, "x\x00y"], ids=str)
def test_the_old_form_of_deletion_is_not_answered_in_pythons_words(world, old_form):
    answer = world.alice("DELETE", "/chats", {"chat_id": old_form})
    check(answer)
    assert answer.get_json()["code"] in (101, 102)


@pytest.mark.parametrize("item", [None, 1, True, 1.5, [], ["x"], {}, {"id": "x"}, ""], ids=str)
@pytest.mark.parametrize("path", ["/chats", "/chats/@chat/sessions"], ids=["chats", "sessions"])
def test_an_item_that_is_no_id_deletes_nothing(world, path, item):
    known = world.chat_id if path == "/chats" else world.session_id
    for ids in ([item], [known, item], [item, known]):
        answer = send(world, Route("DELETE", path, "", ""), json.dumps({"ids": ids}))
        assert answer.get_json()["code"] in (101, 102)


@pytest.mark.parametrize("ids", ["x", 1, True, {}, {"x": 1}, 1.5], ids=str)
@pytest.mark.parametrize("path", ["/chats", "/chats/@chat/sessions"], ids=["chats", "sessions"])
def test_ids_that_are_no_list_are_an_argument_error(world, path, ids):
    answer = send(world, Route("DELETE", path, "", ""), json.dumps({"ids": ids}))
    assert answer.get_json()["code"] == 101


# -- completions --------------------------------------------------------------------------------

REFUSED_BODIES = {
    "malformed": (b"not json", "application/json"), "array": (b"[]", "application/json"),
    "json text": (b'"x"', "application/json"), "text": (b"{}", "text/plain"),
    "nothing asked": (b"{}", "application/json"),
    "too large": (b'{"a":"' + b"x" * 2_000_001 + b'"}', "application/json"),
    "integer": (b'{"a": %d}' % 2**64, "application/json"),
    "stream": (b'{"question": "q", "stream": "maybe"}', "application/json"),
}


@pytest.mark.parametrize("path", ["/chat/completions", "/chats/@chat/completions"])
@pytest.mark.parametrize(("body", "content_type"), REFUSED_BODIES.values(), ids=REFUSED_BODIES)
def test_a_completion_refuses_with_an_answer_that_clients_can_read(world, path, body, content_type):
    answer = send(world, Route("POST", path, "", ""), body, content_type).get_json()
    assert {"answer", "reference", "session_id", "id"} <= set(answer["data"] or {})
    assert answer["data"]["answer"] == f"**ERROR**: {answer['message']}"
    assert answer["data"]["reference"] == []


LIMITS = {
    "long question": {"question": "x" * 262_145}, "long question in bytes": {"question": "\u4e2d" * 87_382},
    "long id": {"messages": [{"role": "user", "content": "q", "id": "i" * 256}]},
    "many other keys": {"messages": [{"role": "user", "content": "q", "metadata": "m" * 16_400}]},
    "long user": {"question": "q", "user_id": "u" * 256}, "long session": {"question": "q", "session_id": "s" * 256},
    "number as id": {"messages": [{"role": "user", "content": "q", "id": 1}]},
}


@pytest.mark.parametrize("body", LIMITS.values(), ids=LIMITS)
def test_a_completion_over_a_limit_is_an_argument_error(world, body):
    answer = send(world, ROUTES["completions"], json.dumps(body | {"stream": False}))
    assert (answer.status_code, answer.get_json()["code"]) == (200, 101)


@pytest.mark.parametrize("value", ["", "x", 2, -1, 1.5, [], {}, [True]], ids=str)
def test_a_switch_that_is_none_is_an_argument_error(world, value):
    for switch in ("stream", *SWITCHES):
        answer = send(world, ROUTES["completions"], json.dumps({"question": "q", switch: value}))
        assert (switch, answer.get_json()["code"]) == (switch, 101)


def test_stream_knows_no_other_words_than_true_and_false(world):
    answer = send(world, ROUTES["completions"], json.dumps({"question": "q", "stream": "yes"}))
    assert answer.get_json()["code"] == 101


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "plain"])
def test_a_refusal_of_a_stream_is_no_stream(world, streams):
    answer = send(world, ROUTES["completions"], json.dumps({"messages": [], "stream": streams}))
    assert (answer.mimetype, answer.get_json()["code"]) == ("application/json", 101)


@pytest.mark.parametrize("key", ["k" * 256, "k" * 100_000], ids=len)
def test_a_long_idempotency_key_is_an_argument_error(world, key):
    body = {"question": "q", "stream": False}
    answer = world.alice("POST", f"/chats/{world.chat_id}/completions", body, headers={"Idempotency-Key": key})
    check(answer)
    assert answer.get_json()["code"] == 101
    assert rows(world) == world.rows


# -- paths and queries --------------------------------------------------------------------------

HOSTILE_URL = ["%00", "a%00b", "%ED%A0%80", "%FF", "%F0%9F%98%80", "x" * 5_000, "'", "%25", "%0A", "*"]
PATHS = {
    "chat": ("GET", "/chats/@", (200, 109)), "delete chat": ("DELETE", "/chats/@", (200, 109)),
    "patch chat": ("PATCH", "/chats/@", (200, 109)), "sessions": ("GET", "/chats/@/sessions", (200, 109)),
    "session": ("GET", "/chats/@chat/sessions/@", (200, 102)),
    "patch session": ("PATCH", "/chats/@chat/sessions/@", (200, 102)),
    "message": ("DELETE", f"{ONE_SESSION}/messages/@", (200, 0)),
    "completions": ("POST", "/chats/@/completions", (200, 109)),
    "run": ("GET", "/runs/@", (404, 404)), "cancel": ("POST", "/runs/@/cancel", (404, 404)),
    "run of a session": ("GET", f"{ONE_SESSION}/runs/@", (404, 404)), "token": ("DELETE", "/system/tokens/@", (200, 0)),
}
QUERIES = ["/chats?id=@", "/chats?name=@", "/chats?keywords=@&name=", "/chats?owner_ids=@", "/chats?page=@&page_size=@",
           "/chats?desc=@",
           "/chats/@chat/sessions?id=@", "/chats/@chat/sessions?name=@", "/chats/@chat/sessions?user_id=@",
           "/chats/@chat/sessions?page=@", "/chats/@chat/sessions?light=@"]


def hostile(path, world, value):
    return path.replace("@chat", world.chat_id).replace("@session", world.session_id).replace("@", value)


@pytest.mark.parametrize(("method", "path", "wanted"), PATHS.values(), ids=PATHS)
def test_a_hostile_id_in_a_path_is_an_unknown_one(world, method, path, wanted):
    for value in HOSTILE_URL:
        answer = world.alice(method, hostile(path, world, value), {"question": "q"} if method == "POST" else None)
        assert (value, answer.status_code, answer.get_json()["code"]) == (value, *wanted)
        check(answer)
    assert rows(world) == world.rows


@pytest.mark.parametrize("path", QUERIES)
def test_a_hostile_value_in_a_query_is_only_a_value(world, path):
    for value in HOSTILE_URL:
        answer = world.alice("GET", hostile(path, world, value))
        assert (value, answer.status_code, answer.get_json()["code"]) == (value, 200, 0)
        check(answer)


@pytest.mark.parametrize("path", ["/chats?orderby=@", "/chats/@chat/sessions?orderby=@"])
def test_a_hostile_order_is_an_argument_error(world, path):
    for value in HOSTILE_URL:
        answer = world.alice("GET", hostile(path, world, value))
        assert answer.get_json()["code"] == 101
        check(answer)
