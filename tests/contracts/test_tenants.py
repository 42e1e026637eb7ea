"""Who sees what: the owner, a second token of the tenant, a stranger and nobody, on every route of the server."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from db.database import connection
from db.ids import new_id
from db.models import ROWS, Run
from tests.contracts.shared_server import acme, alice, app, bob, charlie, models, overrides, person  # noqa: F401
from tests.contracts.wire import frames

OPEN = {("GET", path) for path in ("/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")}
NOT_OWNED = (200, 109, "no authorization")
NO_SESSION = (200, 102, "Session not found!")
NO_SESSION_V1 = (404, 404, "Session not found!")
UNAUTHORIZED = "<Unauthorized '401: Unauthorized'>"
NO_KEY = {
    "message": "No valid API key: send a token of this server as `Authorization: Bearer <token>`.",
    "type": "invalid_request_error", "param": None, "code": "invalid_api_key",
}
NOTHING_NAMED = (200, 0, "success")


@dataclass(frozen=True)
class Case:
    """A call on Alice's rows: what she gets, and what a stranger does (None: see the HTTP status of ours)."""

    body: Any = None
    owner: tuple[int, int] | None = (200, 0)
    stranger: tuple[int, int, str | None] = NOT_OWNED


DATASET, DOCUMENT = "/api/v1/datasets/<dataset_id>", "/api/v1/datasets/<dataset_id>/documents/<document_id>"
NO_DATASET = (200, 102, "You don't own the dataset {dataset_id}")
CHAT, SESSION = "/api/v1/chats/<chat_id>", "/api/v1/chats/<chat_id>/sessions/<session_id>"
QUESTION = {"question": "hello", "stream": False}
FOREIGN_RUN = (404, 404, None)
OPENAI = {"model": "model", "messages": [{"role": "user", "content": "hello"}], "session_id": "{session_id}"}
NOT_OWNED_BY_NAME = (200, 102, "You don't own the chat {chat_id}")
NO_MODEL = (404, 404, "The model `{chat_id}` does not exist. A model is a chat's id or its name; "
                      "GET /v1/models lists them.")
CASES = {
    ("POST", "/api/v1/chats"): Case({"name": "a new chat"}, stranger=NOTHING_NAMED),
    ("GET", "/api/v1/chats"): Case(stranger=NOTHING_NAMED),
    ("DELETE", "/api/v1/chats"): Case({"ids": ["{chat_id}"]}, stranger=(200, 102, "Chat({chat_id}) not found.")),
    ("GET", CHAT): Case(),
    ("PUT", CHAT): Case({"name": "renamed"}),
    ("PATCH", CHAT): Case({"name": "renamed"}),
    ("DELETE", CHAT): Case(),
    ("POST", f"{CHAT}/sessions"): Case({"name": "new"}),
    ("GET", f"{CHAT}/sessions"): Case(),
    ("DELETE", f"{CHAT}/sessions"): Case({"ids": ["{session_id}"]}),
    ("GET", SESSION): Case(),
    ("PUT", SESSION): Case({"name": "renamed"}),
    ("PATCH", SESSION): Case({"name": "renamed"}),
    ("DELETE", f"{SESSION}/messages/<path:message_id>"): Case(),
    ("PUT", f"{SESSION}/messages/<path:message_id>/feedback"): Case({"thumbup": True}),
    ("POST", "/api/v1/chat/completions"): Case(QUESTION | {"chat_id": "{chat_id}", "session_id": "{session_id}"}),
    ("POST", f"{CHAT}/completions"): Case(QUESTION | {"session_id": "{session_id}"}),
    ("POST", "/api/v1/openai/<chat_id>/chat/completions"): Case(OPENAI, stranger=NOT_OWNED_BY_NAME),
    ("POST", "/api/v1/chats_openai/<chat_id>/chat/completions"): Case(OPENAI, stranger=NOT_OWNED_BY_NAME),
    ("GET", "/api/v1/openai/<chat_id>/models"): Case(stranger=NOT_OWNED_BY_NAME),
    ("GET", "/api/v1/chats_openai/<chat_id>/models"): Case(stranger=NOT_OWNED_BY_NAME),
    ("POST", "/v1/chat/completions"): Case(OPENAI | {"model": "{chat_id}"}, stranger=NO_MODEL),
    ("GET", "/v1/models"): Case(stranger=NOTHING_NAMED),
    ("GET", "/v1/models/<path:chat_id>"): Case(stranger=NO_MODEL),
    ("POST", "/api/v1/chat/recommendation"): Case({"question": "hello", "chat_id": "{chat_id}"}),
    ("POST", "/api/v1/sessions/related_questions"): Case({"question": "hello", "chat_id": "{chat_id}"}),
    ("GET", f"{SESSION}/runs"): Case(stranger=FOREIGN_RUN),
    ("GET", f"{SESSION}/runs/<run_id>"): Case(stranger=FOREIGN_RUN),
    ("GET", f"{SESSION}/runs/<run_id>/events"): Case(stranger=FOREIGN_RUN),
    ("POST", f"{SESSION}/runs/<run_id>/cancel"): Case(owner=(409, 409), stranger=FOREIGN_RUN),
    ("GET", "/api/v1/runs/<run_id>"): Case(stranger=FOREIGN_RUN),
    ("GET", "/api/v1/runs/<run_id>/events"): Case(stranger=FOREIGN_RUN),
    ("POST", "/api/v1/runs/<run_id>/cancel"): Case(owner=(409, 409), stranger=FOREIGN_RUN),
    ("GET", "/api/v1/models"): Case(stranger=NOTHING_NAMED),
    ("GET", "/api/v1/users/me/models"): Case(stranger=NOTHING_NAMED),
    ("POST", "/api/v1/datasets"): Case({"name": "a new dataset"}, stranger=NOTHING_NAMED),
    ("GET", "/api/v1/datasets"): Case(stranger=NOTHING_NAMED),
    ("DELETE", "/api/v1/datasets"): Case({"ids": ["{dataset_id}"]}, stranger=NO_DATASET),
    ("GET", DATASET): Case(stranger=(200, 102, "there is no dataset '{dataset_id}'")),
    ("PUT", DATASET): Case({"name": "renamed"}, stranger=(200, 102, "there is no dataset '{dataset_id}'")),
    ("POST", f"{DATASET}/documents"): Case(owner=(200, 101), stranger=NO_DATASET),
    ("GET", f"{DATASET}/documents"): Case(stranger=NO_DATASET),
    ("DELETE", f"{DATASET}/documents"): Case({"ids": ["{document_id}"]}, stranger=NO_DATASET),
    ("GET", DOCUMENT): Case(owner=None, stranger=NO_DATASET),
    ("PUT", DOCUMENT): Case({"name": "renamed"}, stranger=NO_DATASET),
    ("PATCH", DOCUMENT): Case({"name": "renamed"}, stranger=NO_DATASET),
    **{
        route: Case({"document_ids": ["{document_id}"]}, stranger=NO_DATASET)
        for route in (("POST", f"{DATASET}/chunks"), ("DELETE", f"{DATASET}/chunks"),
                      ("POST", f"{DATASET}/documents/parse"), ("POST", f"{DATASET}/documents/stop"))
    },
    ("GET", f"{DOCUMENT}/chunks"): Case(stranger=NO_DATASET),
    ("POST", f"{DOCUMENT}/chunks"): Case({"content": "new"}, stranger=NO_DATASET),
    ("DELETE", f"{DOCUMENT}/chunks"): Case({"chunk_ids": ["{chunk_id}"]}, stranger=NO_DATASET),
    ("PUT", f"{DOCUMENT}/chunks/<chunk_id>"): Case({"content": "changed"}, stranger=NO_DATASET),
    ("PATCH", f"{DOCUMENT}/chunks/<chunk_id>"): Case({"available": False}, stranger=NO_DATASET),
    ("POST", "/api/v1/retrieval"): Case({"dataset_ids": ["{dataset_id}"], "question": "pump"}, stranger=NO_DATASET),
    ("GET", "/api/v1/system/tokens"): Case(stranger=NOTHING_NAMED),
    ("POST", "/api/v1/system/tokens"): Case({"name": "new"}, stranger=NOTHING_NAMED),
    ("DELETE", "/api/v1/system/tokens/<id_or_secret>"): Case(stranger=NOTHING_NAMED),
}
every_route = pytest.mark.parametrize(
    "route", CASES, ids=lambda route: f"{route[0]} {route[1].removeprefix('/api/v1/')}"
)
UNKNOWN = {
    "chat_id": "c" * 32, "session_id": "5" * 32, "message_id": "no-such-turn", "run_id": "f" * 32,
    "id_or_secret": "d" * 32, "dataset_id": "a" * 32, "document_id": "e" * 32, "chunk_id": "b" * 32,
}


def world_of(alice):
    """The ids of Alice's chat, its session, the session's one turn and run, and of a spare token."""
    chat = alice.ok("POST", "/chats", {"name": "Alice's secret chat"})
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": "Alice's secret session"})
    question = {"role": "user", "content": "Alice's secret question", "id": "alices-secret-turn"}
    alice.ok("POST", f"/chats/{chat['id']}/completions",
             {"session_id": session["id"], "messages": [question], "stream": False})
    [run] = alice.ok("GET", f"/chats/{chat['id']}/sessions/{session['id']}/runs")
    token = alice.ok("POST", "/system/tokens", {"name": "Alice's secret token"})
    dataset = alice.ok("POST", "/datasets", {"name": "Alice's secret dataset"})["id"]
    file = {"file": [(io.BytesIO(b"Alice's secret pump."), "secret.txt")]}
    documents = f"/datasets/{dataset}/documents"
    [document] = alice.ok("POST", documents, data=file, content_type="multipart/form-data")
    chunk = alice.ok("POST", f"{documents}/{document['id']}/chunks", {"content": "Alice's secret passage"})["chunk"]
    return {
        "chat_id": chat["id"], "session_id": session["id"], "message_id": "alices-secret-turn", "run_id": run["id"],
        "id_or_secret": token["id"], "dataset_id": dataset, "document_id": document["id"], "chunk_id": chunk["id"],
    }


@pytest.fixture
def named(alice):
    return world_of(alice)


@pytest.fixture(scope="module")
def untouched(app):
    """Another Alice's world, for all tests in which nobody may change it: her tenant's id, the names in it."""
    alice = person(app, f"untouched {new_id()}")
    return alice.tenant_id, world_of(alice)


def rows_of(tenant_id):
    """Every row of a tenant; when a token was last used doesn't count."""
    with connection():
        return {
            row.__name__: sorted(
                ({**found, "last_used_time": None} for found in row.select().where(row.tenant_id == tenant_id).dicts()),
                key=str,
            )
            for row in ROWS if "tenant_id" in row._meta.fields
        }


def filled(template, ids):
    """A path or a body with ids in the places of their names."""
    text = template if isinstance(template, str) else json.dumps(template)
    for name, id in ids.items():
        text = text.replace(f"<{name}>", id).replace(f"<path:{name}>", id).replace("{%s}" % name, id)
    return text if isinstance(template, str) else json.loads(text)


def call(person, route, ids):
    method, rule = route
    return person.at(method, filled(rule, ids), filled(CASES[route].body, ids))


def told(answer):
    """Code and message of an answer that isn't streamed, in whichever protocol's words."""
    body = answer.get_json()
    if "code" in body:
        return body["code"], body["message"]
    return (answer.status_code, body["error"]["message"]) if "error" in body else (0, "success")


def test_every_route_of_the_server_has_a_case_here(app):
    served = {
        (method, rule.rule) for rule in app.url_map.iter_rules() for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert served - OPEN == set(CASES)


@every_route
@pytest.mark.parametrize("who", ["alice", "bob"])
def test_every_token_of_the_tenant_may_do_it(route, who, request, named):
    answer = call(request.getfixturevalue(who), route, named)
    if CASES[route].owner is None:  # a file
        assert (answer.status_code, answer.data) == (200, b"Alice's secret pump.")
        return
    streamed = answer.mimetype == "text/event-stream"
    code = frames(answer.get_data(as_text=True))[-1]["code"] if streamed else told(answer)[0]
    assert (answer.status_code, code) == CASES[route].owner


@every_route
def test_a_stranger_changes_nothing_and_sees_nothing(route, charlie, untouched):
    tenant_id, named = untouched
    before = rows_of(tenant_id)
    answer = call(charlie, route, named)
    status, code, message = CASES[route].stranger
    assert (answer.status_code, told(answer)[0]) == (status, code)
    assert message is None or told(answer)[1] == filled(message, named)
    assert "secret" not in answer.get_data(as_text=True)
    assert rows_of(tenant_id) == before


@every_route
def test_a_stranger_cannot_tell_foreign_from_unknown(route, charlie, untouched):
    _, named = untouched
    if CASES[route].stranger is NOTHING_NAMED and "<" not in route[1]:
        return  # a route of the caller's own rows: it names none
    foreign, unknown = (call(charlie, route, ids) for ids in (named, UNKNOWN))
    assert foreign.status_code == unknown.status_code
    text = foreign.get_data(as_text=True)
    for name, id in named.items():
        text = text.replace(id, UNKNOWN[name])
    assert text == unknown.get_data(as_text=True)


@every_route
def test_nobody_is_let_in_or_changes_anything(route, nobody, untouched):
    tenant_id, named = untouched
    before = rows_of(tenant_id)
    answer = call(nobody, route, named)
    assert answer.status_code == 401
    if route[1].startswith("/v1/"):
        assert answer.get_json() == {"error": NO_KEY}
    else:
        assert answer.get_json() == {"code": 401, "message": UNAUTHORIZED, "data": None}
    assert rows_of(tenant_id) == before


THROUGH_OWN_CHAT = {
    route: FOREIGN_RUN if "/runs" in route[1] else NO_SESSION_V1 if route[1].startswith("/v1/") else NO_SESSION
    for route, case in CASES.items() if "<session_id>" in route[1] or "session_id" in (case.body or {})
} | {("DELETE", f"{CHAT}/sessions"): (200, 102, "The chat doesn't own the session {session_id}")}


@pytest.mark.parametrize("route", THROUGH_OWN_CHAT, ids=lambda route: f"{route[0]} {route[1].removeprefix('/api/v1/')}")
def test_ones_own_chat_opens_no_foreign_session(route, charlie, untouched):
    tenant_id, named = untouched
    before, own = rows_of(tenant_id), charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    foreign, unknown = (call(charlie, route, ids | {"chat_id": own["id"]}) for ids in (named, UNKNOWN))
    status, code, message = THROUGH_OWN_CHAT[route]
    assert (unknown.status_code, told(unknown)[0]) == (status, code)
    assert (foreign.status_code, told(foreign)[0]) == (status, code)
    assert message is None or told(foreign)[1] == filled(message, named)
    assert rows_of(tenant_id) == before


@pytest.mark.parametrize("tail", ["", "/events", "/cancel"], ids=["read", "follow", "cancel"])
def test_a_run_is_reached_through_its_own_session_only(alice, named, tail):
    other = alice.ok("POST", f"/chats/{named['chat_id']}/sessions", {"name": "other"})
    path = f"/chats/{named['chat_id']}/sessions/{other['id']}/runs/{named['run_id']}{tail}"
    answer = alice("POST" if tail == "/cancel" else "GET", path)
    assert answer.status_code == 404


def test_a_body_may_not_name_a_foreign_chat_beside_ones_own(charlie, untouched):
    tenant_id, named = untouched
    before, own = rows_of(tenant_id), charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    body = QUESTION | {"chat_id": named["chat_id"]}
    assert charlie.refused("POST", f"/chats/{own['id']}/completions", body) == (109, "no authorization")
    assert rows_of(tenant_id) == before


def test_lists_filter_foreign_rows_out_by_every_filter(alice, charlie, named):
    own = charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    for query in (f"id={named['chat_id']}", "name=Alice's secret chat", "keywords=secret",
                  f"owner_ids={alice.tenant_id}",
                  f"owner_ids={alice.tenant_id}&id={named['chat_id']}"):
        assert charlie.ok("GET", f"/chats?{query}") == {"chats": [], "total": 0}
    assert charlie.ok("GET", f"/chats?owner_ids={alice.tenant_id}&owner_ids={charlie.tenant_id}")["total"] == 1
    for query in (f"id={named['session_id']}", f"user_id={alice.tenant_id}"):
        assert charlie.ok("GET", f"/chats/{own['id']}/sessions?{query}") == []


def test_delete_all_stops_at_the_tenant(alice, charlie, named):
    charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    assert charlie.ok("DELETE", "/chats", {"delete_all": True}) == {"success_count": 1}
    assert alice.ok("GET", "/chats")["total"] == 1


def test_an_active_run_cannot_be_cancelled_by_a_stranger(alice, charlie, named):
    with connection():
        mine = Run.id == named["run_id"]
        Run.update(status="active", owner="elsewhere", lease_until=10**12).where(mine).execute()
        assert charlie("POST", f"/runs/{named['run_id']}/cancel").status_code == 404
        assert alice.ok("GET", f"/runs/{named['run_id']}")["cancel_requested"] is False
        Run.update(status="complete").where(mine).execute()
