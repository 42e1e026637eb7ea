"""What RAGFlow's users reported of chats and sessions, each a test of the right outcome here."""

import json
import time
from typing import Any

import pytest
from flask import Flask

from db.database import connection, fetch
from db.models import API4Conversation, Conversation
from services.api4_conversation_service import API4ConversationService
from services.api_tokens import ApiTokenService
from services.conversation_service import ConversationService
from services.messages import adopt
from services.principal import Principal
from tests.conftest import Person
from tests.contracts.wire import (
    ask,
    at_once,
    body,
    cited,
    final_of,
    frames,
    path,
    read,
    runs,
    spoken,
    stream,
    text_of,
    twin,
    until,
)
from tests.factories import API4ConversationFactory, ConversationFactory
from tests.fakes import Gate, ScriptedModel, chunk, fails, says

pytestmark = pytest.mark.usefixtures("settled")


def sources(model: ScriptedModel, **chunks: tuple[str, ...]) -> None:
    """Each question's answer is its own name in capitals and rests on these passages."""
    for question, names in chunks.items():
        model.script(question, lambda question=question, names=names: says(question.upper(), chunks=names))  # type: ignore[misc]


def listed(person: Person, chat: Any, query: str = "") -> list[Any]:
    found: list[Any] = person.ok("GET", f"/chats/{chat['id']}/sessions?{query}")
    return found


def imported(person: Person, chat: Any, message: Any, reference: Any) -> Any:
    """A session whose arrays are as an older RAGFlow left them."""
    with connection():
        row = ConversationFactory(legacy=True, tenant_id=person.tenant_id, dialog_id=chat["id"],
                                  message=message, reference=reference)
    return {"chat_id": chat["id"], "id": row.id}


def old_messages(*, prologue: bool = True) -> list[dict[str, Any]]:
    turns = [
        {"role": role, "content": f"{role[0]}{n}", "id": f"t{n}"} for n in (1, 2) for role in ("user", "assistant")
    ]
    return [{"role": "assistant", "content": "Hi!"}, *turns] if prologue else turns


def slot(*names: str) -> dict[str, Any]:
    return {"chunks": [{"chunk_id": name, "content_with_weight": f"text {name}"} for name in names], "doc_aggs": []}


# -- lost data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("read_frames", [0, 3])
def test_a_reader_that_presses_stop_loses_no_turn(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, read_frames: int
) -> None:
    """L1."""
    gate = Gate("a", "b", "c", chunks=("x",))
    model.script("long one", gate)
    response = alice("POST", path(chat), body("long one", session))
    lines = response.iter_encoded()
    while read_frames and b"".join([next(lines)]).count(b"data:") == 0:
        pass
    response.close()
    gate.opened.set()
    until(lambda: runs(alice, session, "complete"))
    assert spoken(alice, session)[1:] == [("user", "long one"), ("assistant", "abcdone")]
    assert cited(read(alice, session)) == {"abcdone": ["x"]}
    assert ask(alice, chat, "next", session)["answer"] == "You said: next"


@pytest.mark.parametrize("streams", [True, False])
def test_a_session_that_the_server_made_lists_its_messages(
    alice: Person, chat: Any, streams: bool
) -> None:
    """L2, L4, peers UX-05."""
    first = final_of(stream(alice, chat, "2+2?")) if streams else ask(alice, chat, "2+2?")
    made = {"chat_id": chat["id"], "id": first["session_id"]}
    [row] = listed(alice, chat, f"id={made['id']}")
    assert [entry["content"] for entry in row["messages"]] == ["Welcome.", "2+2?", "You said: 2+2?"]
    ask(alice, chat, "and 3+3?", made)
    [row] = listed(alice, chat, f"id={made['id']}")
    assert len(row["messages"]) == 5 and row["messages"] == read(alice, made)["messages"]


@pytest.mark.parametrize(("prologue", "opening"), [("Hi X", ["Hi X"]), ("", []), (None, [])])
def test_a_session_opens_with_the_chats_prologue_or_with_nothing(
    alice: Person, model: ScriptedModel, prologue: Any, opening: list[str]
) -> None:
    """L3: both shapes keep their references aligned."""
    sources(model, q1=("a",), q2=("b",))
    chat = alice.ok("POST", "/chats", {"name": "c", "prompt_config": {"prologue": prologue}})
    made = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": "n"})
    assert [entry["content"] for entry in made["messages"]] == opening
    for question in ("q1", "q2"):
        ask(alice, chat, question, made)
    assert cited(read(alice, made)) == {"Q1": ["a"], "Q2": ["b"]}


@pytest.mark.parametrize(("reference", "expected"), [
    ({"chunks": {"c1": {"chunk_id": "c1"}}, "doc_aggs": {"d": {"doc_id": "d"}}}, [[], ["c1"]]),
    ([{"chunks": {"c1": {"chunk_id": "c1"}}}, slot("c2")], [["c1"], ["c2"]]),
    ([slot("c1")], [["c1"], []]), ([], [[], []]), ([None, {}], [[], []]), ([[{"id": "c1"}], []], [["c1"], []]),
])
def test_every_older_shape_of_a_reference_is_read_without_loss(
    alice: Person, chat: Any, reference: Any, expected: list[list[str]]
) -> None:
    """L5: and never written back emptied."""
    message, slots = adopt(old_messages(), reference)
    session = imported(alice, chat, message, slots)
    if not isinstance(reference, list):
        expected = [["c1"], []]
    for _ in range(2):
        assert [[found["id"] for found in kept["chunks"]] for kept in read(alice, session)["reference"]][:2] == expected
        ask(alice, chat, "another", session)


def test_statistics_rows_of_embedded_pages_keep_an_older_reference_too(alice: Person) -> None:
    """L5, for api_4_conversation."""
    principal = Principal(str(alice.tenant_id))
    with connection():
        row = API4ConversationFactory(legacy=True, tenant_id=principal.tenant_id, message=old_messages(),
                                      reference=[{"chunks": {"c1": {"chunk_id": "c1"}}}, slot("c2")])
    question = {"role": "user", "content": "q", "id": "t3"}
    answer = {"role": "assistant", "content": "a", "id": "t3"}
    API4ConversationService.append_message(
        principal, row.id, [question, answer], {"message_id": "t3", "chunks": [chunk("c3")], "doc_aggs": []}, tokens=7
    )
    whole = API4ConversationService.text(principal, row.id).parsed()
    assert [kept["chunks"][0]["id"] for kept in whole.slots] == ["c1", "c2", "c3"]
    with connection():
        stored = API4Conversation.get_by_id(row.id)
    assert (stored.round, stored.tokens, stored.errors) == (1, 7, None)


def test_the_end_of_a_long_stream_is_stored_though_its_connections_died(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, engine: str
) -> None:
    """L6."""
    if engine == "sqlite":
        pytest.skip("a file has no connection to lose")
    gate = Gate("half ")
    model.script("slow?", gate)
    response = alice("POST", path(chat), body("slow?", session))
    assert gate.reached.wait(10)
    with connection():
        fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
              " WHERE pid <> pg_backend_pid() AND datname = current_database()")
    gate.opened.set()
    assert text_of([frame["data"] for frame in frames(response.get_data(as_text=True))]) == "half done"
    assert spoken(alice, session)[1:] == [("user", "slow?"), ("assistant", "half done")]
    assert len(read(alice, session)["reference"]) == 1


def test_a_failed_turn_keeps_its_question_and_the_model_sees_alternating_roles(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """L7, C7, C8: no prologue, no failed text, no repeated role."""
    model.script("hello", lambda: fails("par"))
    ask(alice, chat, "before", session)
    stream(alice, chat, "hello", session)
    ask(alice, chat, "again", session)
    stored = read(alice, session)["messages"]
    assert [entry["content"] for entry in stored if entry["role"] == "user"] == ["before", "hello", "again"]
    assert [entry.get("finish_reason") for entry in stored if entry["role"] == "assistant"] == [
        None, "stop", "error", "stop",
    ]
    prompt = [(message["role"], message["content"]) for message in model.requests[-1].messages]
    assert [message for message in prompt if message[0] != "system"] == [
        ("user", "before"), ("assistant", "You said: before"), ("user", "again"),
    ]
    assert [role for role, _ in prompt].count("system") <= 1


def test_a_greeting_turned_on_later_changes_no_session_that_is_there(
    alice: Person, model: ScriptedModel
) -> None:
    """L8: old messages stay byte-identical, references don't move."""
    sources(model, q1=("a",), q2=("b",), q3=("c",))
    chat = alice.ok("POST", "/chats", {"name": "c", "prompt_config": {"prologue": ""}})
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {})
    for question, prologue in (("q1", "Hi!"), ("q2", "Hello!"), ("q3", "")):
        ask(alice, chat, question, session)
        before = read(alice, session)
        alice.ok("PATCH", f"/chats/{chat['id']}", {"prompt_config": {"prologue": prologue}})
        assert (read(alice, session)["messages"], read(alice, session)["reference"]) == (
            before["messages"], before["reference"],
        )
    assert cited(read(alice, session)) == {"Q1": ["a"], "Q2": ["b"], "Q3": ["c"]}


# -- wrong data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prologue", [True, False])
@pytest.mark.parametrize("reference", [
    [], [slot("a")], [slot("a"), slot("b")], [{}, slot("a"), slot("b")], [None, slot("b")], [slot("a"), {}],
    [{"chunks": [], "doc_aggs": []}, slot("a"), slot("b")],
])
def test_a_list_succeeds_whatever_an_older_version_left_in_its_references(
    alice: Person, chat: Any, session: Any, prologue: bool, reference: list[Any]
) -> None:
    """W1: and one bad row never breaks the others."""
    old = imported(alice, chat, old_messages(prologue=prologue), reference)
    rows = {row["id"]: row for row in listed(alice, chat)}
    assert rows.keys() == {old["id"], session["id"]}
    names = [found["id"] for kept in rows[old["id"]]["reference"] for found in kept["chunks"]]
    assert names == [found["chunk_id"] for kept in reference if kept for found in kept["chunks"]]
    assert rows[old["id"]]["messages"][-1]["content"] == "a2"


def test_a_turn_without_passages_has_a_slot_of_its_own(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """W2."""
    sources(model, q1=(), q2=("a", "b", "c"), q3=())
    for question in ("q1", "q2", "q3"):
        ask(alice, chat, question, session)
    assert cited(read(alice, session)) == {"Q1": [], "Q2": ["a", "b", "c"], "Q3": []}


def test_a_leading_placeholder_shifts_no_reference(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """W3: on no read route, for new rows and for old ones."""
    sources(model, q1=("a",), q2=("b",))
    old = imported(alice, chat, [{"role": "assistant", "content": "Hi!"}], [{}])
    for where in (session, old):
        for question in ("q1", "q2"):
            ask(alice, chat, question, where)
        [row] = listed(alice, chat, f"id={where['id']}")
        assert cited(read(alice, where)) == cited(row) == {"Q1": ["a"], "Q2": ["b"]}


@pytest.mark.parametrize("query", [
    "", "page=1&page_size=2", "orderby=update_time&desc=false", "orderby=name", "name=first", "desc=true&page_size=1",
])
def test_references_do_not_depend_on_how_a_list_is_asked_for(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, query: str
) -> None:
    """W4: under each answer what its own stream carried."""
    sources(model, **{f"q{n}": (f"c{n}",) for n in range(5)})
    carried = {
        f"Q{n}": [found["id"] for found in final_of(stream(alice, chat, f"q{n}", session))["reference"]["chunks"]]
        for n in range(5)
    }
    [row] = listed(alice, chat, query)
    assert cited(row) == carried == {f"Q{n}": [f"c{n}"] for n in range(5)}


@pytest.mark.parametrize("breaks", [fails, lambda: fails("Q2"), says], ids=["failed", "half", "silent"])
def test_a_turn_that_failed_keeps_its_slot(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, breaks: Any
) -> None:
    """W5."""
    sources(model, q1=("a",), q3=("c",))
    model.script("q2", breaks)
    for question in ("q1", "q2", "q3"):
        stream(alice, chat, question, session)
    stored = read(alice, session)
    assert [[found["id"] for found in kept["chunks"]] for kept in stored["reference"]] == [["a"], [], ["c"]]
    assert cited(stored)["Q1"] == ["a"] and cited(stored)["Q3"] == ["c"]


@pytest.mark.parametrize("prologue", ["", "Welcome."])
def test_deleting_a_pair_removes_its_own_slot_only(alice: Person, model: ScriptedModel, prologue: str) -> None:
    """W6."""
    sources(model, q1=("a",), q2=("b",), q3=("c",))
    chat = alice.ok("POST", "/chats", {"name": "c", "prompt_config": {"prologue": prologue}})
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {})
    first, *_ = [ask(alice, chat, question, session)["id"] for question in ("q1", "q2", "q3")]
    where = f"/chats/{chat['id']}/sessions/{session['id']}/messages"
    for _ in range(2):
        alice.ok("DELETE", f"{where}/{first}")
        assert cited(read(alice, session)) == {"Q2": ["b"], "Q3": ["c"]}
    before = read(alice, session)
    alice.ok("DELETE", f"{where}/unknown")
    assert read(alice, session) == before


@pytest.mark.parametrize("reference", [[], [slot("a")], [{}, slot("a"), slot("b")]])
@pytest.mark.parametrize("message", [
    [{"role": "user", "content": "u1", "id": "t1"}],
    [{"role": "user", "content": "u1", "id": "t1"}, {"role": "user", "content": "u2", "id": "t2"}],
    [{"role": "assistant", "content": "a0", "id": "t0"}, {"role": "user", "content": "u1", "id": "t1"}],
])
def test_deleting_from_an_odd_old_row_is_never_a_server_error(
    alice: Person, chat: Any, message: list[Any], reference: list[Any]
) -> None:
    """W6: a question without its answer is no pair; the refusal changes nothing."""
    old = imported(alice, chat, message, reference)
    where = f"/chats/{chat['id']}/sessions/{old['id']}/messages"
    before = spoken(alice, old)
    for id, code in (("t1", 102), ("t1", 102), ("t0", 0), ("unknown", 0)):
        assert alice("DELETE", f"{where}/{id}").get_json()["code"] == code
    assert spoken(alice, old) == before


@pytest.mark.parametrize("key", ["thumbup", "set"])
def test_a_vote_is_stored_as_it_was_sent(alice: Person, chat: Any, session: Any, key: str) -> None:
    """W7."""
    first, _ = (ask(alice, chat, question, session)["id"] for question in ("q1", "q2"))
    where = f"/chats/{chat['id']}/sessions/{session['id']}/messages/{first}/feedback"
    for vote, expected in (
        ({key: True}, (True, None)), ({key: False, "feedback": "bad"}, (False, "bad")), ({key: True}, (True, None)),
    ):
        alice.ok("PUT", where, vote)
        entries = read(alice, session)["messages"]
        assert (entries[2]["thumbup"], entries[2].get("feedback")) == expected
        assert [index for index, entry in enumerate(entries) if "thumbup" in entry] == [2]


def test_the_end_user_of_a_session_is_stored_shown_and_filtered_by(alice: Person, chat: Any) -> None:
    """W8, and what users ask for in 4."""
    where = f"/chats/{chat['id']}/sessions"
    made = {user: alice.ok("POST", where, {"name": "n", "user_id": user})["id"] for user in ("u1", "u2")}
    made["nobody"] = alice.ok("POST", where, {"name": "n"})["id"]
    for user in ("u1", "u2"):
        assert [(row["id"], row["user_id"]) for row in listed(alice, chat, f"user_id={user}")] == [(made[user], user)]
    assert [row["id"] for row in listed(alice, chat, f"user_id={alice.tenant_id}")] == [made["nobody"]]
    assert listed(alice, chat, "user_id=u3") == []


def test_one_call_is_one_pair_and_the_same_id_again_adds_none(alice: Person, chat: Any, session: Any) -> None:
    """W9, peers DU-05."""
    for _ in range(2):
        alice.ok("POST", path(chat), body("q", session, id="m1") | {"stream": False})
    assert spoken(alice, session)[1:] == [("user", "q"), ("assistant", "You said: q")]


def test_what_was_cited_live_is_cited_on_reload(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """W10: three turns, the last one cut before its last frame."""
    sources(model, q1=("a",), q2=("b", "c"))
    gate = Gate("Q3", after=(), chunks=("d",))
    model.script("q3", gate)
    for question in ("q1", "q2"):
        live = final_of(stream(alice, chat, question, session))["reference"]["chunks"]
        assert read(alice, session)["reference"][-1]["chunks"] == live
    response = alice("POST", path(chat), body("q3", session))
    assert gate.reached.wait(10)
    response.close()
    gate.opened.set()
    until(lambda: not runs(alice, session, "active"))
    assert cited(read(alice, session)) == {"Q1": ["a"], "Q2": ["b", "c"], "Q3": ["d"]}


def test_creating_never_renames_what_is_there(alice: Person, chat: Any, session: Any) -> None:
    """W11: a stale id in the body is ignored or refused."""
    alice("POST", "/chats", {"name": "B", "id": chat["id"], "chat_id": chat["id"]}).get_data()
    alice("POST", f"/chats/{chat['id']}/sessions", {"name": "B", "id": session["id"]}).get_data()
    assert alice.ok("GET", f"/chats/{chat['id']}")["name"] == "Alice's chat"
    assert read(alice, session)["name"] == "first"
    assert all(row["name"] == "B" for row in listed(alice, chat) if row["id"] != session["id"])


OLD_CHUNK = {
    "chunk_id": "c1", "content_with_weight": "text", "doc_id": "d1", "docnm_kwd": "d.pdf", "kb_id": "k1",
    "img_id": "i1", "position_int": [[1, 2]], "doc_type_kwd": "image", "similarity": 0.5,
}


def test_passages_read_the_same_whoever_wrote_them(alice: Person, chat: Any) -> None:
    """W12: RAGFlow's inner names and its wire's."""
    old = imported(alice, chat, old_messages(), [{"chunks": [OLD_CHUNK]}, {"chunks": [chunk("c2")]}])
    one, two = (kept["chunks"][0] for kept in read(alice, old)["reference"])
    assert (one["id"], one["content"], one["document_id"], one["document_name"]) == ("c1", "text", "d1", "d.pdf")
    assert (one["dataset_id"], one["image_id"], one["positions"], one["doc_type"]) == ("k1", "i1", [[1, 2]], "image")
    assert two == chunk("c2") and one.keys() == two.keys()
    assert listed(alice, chat)[0]["reference"][0]["chunks"] == [one]


def test_asking_the_first_question_again_neither_shrinks_nor_grows_the_session(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """W13, answered by replay (design §7.8); ids stay, so deletion by the first id works."""
    sources(model, q1=("a",), q2=("b",))
    for question in ("q1", "q2"):
        alice.ok("POST", path(chat), body(question, session, id=question) | {"stream": False})
    before = read(alice, session)
    again = ask(alice, chat, "q1", session, **body("q1", id="q1"), pass_all_history_messages=True)
    assert (again["answer"], again["id"]) == ("Q1", "q1")
    after = read(alice, session)
    assert (after["messages"], after["reference"]) == (before["messages"], before["reference"])
    code, _ = alice.refused("POST", path(chat), {
        "messages": [], "session_id": session["id"], "pass_all_history_messages": True,
    })
    alice.ok("DELETE", f"/chats/{chat['id']}/sessions/{session['id']}/messages/q1")
    assert (code, cited(read(alice, session))) == (101, {"Q2": ["b"]})


# -- security -----------------------------------------------------------------------------------


def doors(chat: Any, session: Any, turn_id: str) -> list[tuple[str, str, Any]]:
    """Every route to a session and its chat."""
    one = f"/chats/{chat['id']}/sessions/{session['id']}"
    return [
        ("GET", f"/chats/{chat['id']}", None), ("PUT", f"/chats/{chat['id']}", {"name": "x"}),
        ("PATCH", f"/chats/{chat['id']}", {"name": "x"}), ("DELETE", f"/chats/{chat['id']}", None),
        ("GET", f"/chats/{chat['id']}/sessions", None), ("POST", f"/chats/{chat['id']}/sessions", {"name": "x"}),
        ("DELETE", f"/chats/{chat['id']}/sessions", {"ids": [session["id"]]}),
        ("DELETE", f"/chats/{chat['id']}/sessions", {"delete_all": True}),
        ("GET", one, None), ("PUT", one, {"name": "x"}), ("PATCH", one, {"name": "x"}),
        ("DELETE", f"{one}/messages/{turn_id}", None),
        ("PUT", f"{one}/messages/{turn_id}/feedback", {"thumbup": True}),
        ("POST", path(chat), body("x", session)), ("POST", path(chat), body("x")),
        ("POST", "/chat/completions", body("x", session) | {"chat_id": chat["id"], "stream": False}),
        ("GET", f"{one}/runs", None), ("GET", f"{one}/runs/{turn_id}", None),
        ("POST", f"{one}/runs/{turn_id}/cancel", None),
    ]


def test_a_stranger_gets_what_unknown_ids_get_and_changes_nothing(
    alice: Person, charlie: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """S1, peers SC-01, SC-02."""
    turn_id = ask(alice, chat, "secret words", session)["id"]
    before = read(alice, session), alice.ok("GET", f"/chats/{chat['id']}")
    asked, unknown = len(model.requests), ({"id": "0" * 32}, {"id": "1" * 32})
    for there, nowhere in zip(doors(chat, session, turn_id), doors(*unknown, turn_id), strict=True):
        foreign, missing = (charlie(method, where, sent) for method, where, sent in (there, nowhere))
        told = foreign.get_data(as_text=True).replace(session["id"], "1" * 32).replace(chat["id"], "0" * 32)
        assert (told, foreign.status_code) == (missing.get_data(as_text=True), missing.status_code), there
        assert foreign.get_json()["code"] != 0 and "secret" not in told
    assert (read(alice, session), alice.ok("GET", f"/chats/{chat['id']}")) == before
    assert len(model.requests) == asked


def test_no_one_plants_a_session_in_another_tenant(alice: Person, charlie: Person, chat: Any, session: Any) -> None:
    """S3: `user_id` names an end user of the caller's, never an owner."""
    alice.ok("POST", f"/chats/{chat['id']}/sessions", {"user_id": charlie.tenant_id})
    ask(alice, chat, "hello", user_id=charlie.tenant_id)
    alice.ok("PUT", f"/chats/{chat['id']}/sessions/{session['id']}", {"user_id": charlie.tenant_id})
    assert read(alice, session)["user_id"] == alice.tenant_id
    assert charlie.ok("GET", "/chats")["total"] == 0
    with connection():
        assert {row.tenant_id for row in Conversation.select()} == {alice.tenant_id}


@pytest.mark.parametrize("owners", ["{alice}", "{alice}&owner_ids={alice}", "{alice}&owner_ids={charlie}", ""])
def test_chats_of_other_owners_are_never_listed(alice: Person, charlie: Person, chat: Any, owners: str) -> None:
    """S4."""
    own = charlie.ok("POST", "/chats", {"name": "own"})
    asked = owners.format(alice=alice.tenant_id, charlie=charlie.tenant_id)
    found = charlie.ok("GET", f"/chats?owner_ids={asked}")["chats"]
    assert {row["id"] for row in found} <= {own["id"]}
    assert bool(found) is (owners in ("", "{alice}&owner_ids={charlie}"))


@pytest.mark.parametrize("owner", ["alice", "charlie"])
def test_a_session_is_reached_through_its_own_chat_only(
    alice: Person, request: pytest.FixtureRequest, chat: Any, owner: str
) -> None:
    """S5."""
    person: Person = request.getfixturevalue(owner)
    other = person.ok("POST", "/chats", {"name": "other"})
    theirs = person.ok("POST", f"/chats/{other['id']}/sessions", {"name": "theirs"})
    asked = ask(person, other, "hello", theirs)
    before = read(person, theirs)
    one = f"/chats/{chat['id']}/sessions/{theirs['id']}"
    for method, where, sent in (
        ("GET", one, None), ("PATCH", one, {"name": "x"}), ("DELETE", f"{one}/messages/{asked['id']}", None),
        ("PUT", f"{one}/messages/{asked['id']}/feedback", {"thumbup": True}),
        ("POST", path(chat), body("x", theirs)), ("GET", f"{one}/runs", None),
        ("DELETE", f"/chats/{chat['id']}/sessions", {"ids": [theirs["id"]]}),
    ):
        code, _ = alice.refused(method, where, sent)
        assert code in (102, 404), where
    assert read(person, theirs) == before


@pytest.mark.parametrize("text", [
    "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "[a](javascript:alert(1))", "<svg onload=alert(1)>",
])
def test_markup_is_stored_as_it_was_sent_and_never_served_as_a_page(alice: Person, text: str) -> None:
    """S6, peers SC-06: JSON, and browsers may not guess otherwise."""
    chat = alice.ok("POST", "/chats", {"name": text, "prompt_config": {"prologue": text}})
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": text})
    ask(alice, chat, text, session)
    stored = read(alice, session)
    assert (stored["name"], stored["messages"][0]["content"], stored["messages"][1]["content"]) == (text, text, text)
    for where in ("/chats", f"/chats/{chat['id']}/sessions", f"/chats/{chat['id']}/sessions/{session['id']}"):
        response = alice("GET", where)
        assert (response.mimetype, response.headers["X-Content-Type-Options"]) == ("application/json", "nosniff")


def test_an_embed_token_opens_no_api_route(app: Flask, alice: Person, chat: Any, session: Any) -> None:
    """U4: the scopes stay apart."""
    secret = ApiTokenService.create(Principal(str(alice.tenant_id)), chat_id=chat["id"])[1]
    visitor = Person(app.test_client(), secret)
    for method, where, sent in doors(chat, session, "t"):
        assert visitor(method, where, sent).status_code == 401
    assert spoken(alice, session) == [("assistant", "Welcome.")]


# -- capacity -----------------------------------------------------------------------------------


def test_many_sessions_stream_at_once_and_each_has_its_own_pair(
    alice: Person, chat: Any, model: ScriptedModel
) -> None:
    """P1, P6: 24 at once, three turns each."""
    made = [alice.ok("POST", f"/chats/{chat['id']}/sessions", {}) for _ in range(24)]

    def talk(number: int) -> None:
        person = twin(alice)
        for turn in range(3):
            assert text_of(stream(person, chat, f"q{number}.{turn}", made[number])) == f"You said: q{number}.{turn}"

    at_once(*(lambda number=number: talk(number) for number in range(24)))  # type: ignore[misc]
    for number, session in enumerate(made):
        assert [text for role, text in spoken(alice, session) if role == "user"] == [
            f"q{number}.{turn}" for turn in range(3)
        ]
        assert len(read(alice, session)["reference"]) == 3


def test_open_streams_hold_no_connection(alice: Person, chat: Any, model: ScriptedModel) -> None:
    """P2, peers HP-06: 30 streams wait for their model over a pool of 10, and lists answer."""
    gate = Gate("half")
    model.script("slow?", gate)
    people = [twin(alice) for _ in range(30)]
    responses = [person("POST", path(chat), body("slow?")) for person in people]
    started = time.monotonic()
    for _ in range(5):
        assert len(listed(alice, chat, "light=true")) == 30
    assert time.monotonic() - started < 2
    gate.opened.set()
    told = [frames(response.get_data(as_text=True)) for response in responses]
    assert {text_of([frame["data"] for frame in part]) for part in told} == {"halfdone"}


def test_a_light_list_reads_no_document(alice: Person, chat: Any) -> None:
    """P3, peers HP-01, HP-07: the answer's size is bound by the page."""
    with connection():
        for _ in range(40):
            ConversationFactory(tenant_id=alice.tenant_id, dialog_id=chat["id"],
                                message=[{"role": "assistant", "content": "x" * 200_000, "uid": "u", "seq": 1}])
    response = alice("GET", f"/chats/{chat['id']}/sessions?light=true")
    assert len(response.get_json()["data"]) == 30 and len(response.data) < 20_000


@pytest.mark.settings(document={"page_bytes": 2_000})
def test_the_row_that_a_turn_rewrites_does_not_grow_with_the_session(
    alice: Person, chat: Any, session: Any
) -> None:
    """P4, peers HP-02."""
    for number in range(30):
        ask(alice, chat, f"q{number} " + "x" * 200, session)
    with connection():
        row = Conversation.get_by_id(session["id"])
    assert row.open_bytes < 4_000 < row.document_bytes and row.page_count > 5
    assert [text[:3].strip() for role, text in spoken(alice, session) if role == "user"] == [
        f"q{number}" for number in range(30)
    ]


def test_a_thousand_sessions_go_in_one_call(alice: Person, chat: Any, session: Any) -> None:
    """P5: and one more id than the limit deletes nothing."""
    with connection():
        ids = [ConversationFactory(tenant_id=alice.tenant_id, dialog_id=chat["id"]).id for _ in range(1_001)]
    where = f"/chats/{chat['id']}/sessions"
    assert alice.refused("DELETE", where, {"ids": ids})[0] == 101
    assert alice.ok("DELETE", where, {"ids": ids[:1000]}) is True
    assert {row["id"] for row in listed(alice, chat)} == {ids[1000], session["id"]}
    assert alice.ok("DELETE", where, {"delete_all": True}) is True
    assert listed(alice, chat) == []


# -- what clients meet --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a" * 300, "中" * 300, "a" * 254 + "😀😀", "e\u0301" * 200])
def test_a_long_name_is_cut_by_characters_and_a_long_question_is_kept(
    alice: Person, chat: Any, text: str
) -> None:
    """U1, peers UN-03."""
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": text})
    assert session["name"] == text[:255]
    renamed = alice.ok("PUT", f"/chats/{chat['id']}/sessions/{session['id']}", {"name": "b" * 256})
    assert renamed["name"] == "b" * 255
    data = ask(alice, chat, text)
    made = read(alice, {"chat_id": chat["id"], "id": data["session_id"]})
    assert (made["messages"][1]["content"], len(made["name"]) <= 255) == (text, True)


def test_deleting_what_is_not_there_says_so_and_deletes_the_rest(alice: Person, chat: Any, session: Any) -> None:
    """U2."""
    where, missing = f"/chats/{chat['id']}/sessions", "0" * 32
    assert alice.refused("DELETE", where, {"ids": [missing]}) == (
        102, f"The chat doesn't own the session {missing}",
    )
    both = alice.ok("DELETE", where, {"ids": [session["id"], missing]})
    assert both == {"success_count": 1, "errors": [f"The chat doesn't own the session {missing}"]}
    assert alice.refused("DELETE", where, {"ids": [session["id"]]})[0] == 102


def test_after_a_drop_the_state_of_the_turn_can_be_read(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """U5."""
    gate = Gate("half")
    model.script("slow?", gate)
    response = alice("POST", path(chat), body("slow?", session))
    run_id = response.headers["X-Chatkeep-Run"]
    assert gate.reached.wait(10)
    response.close()
    assert alice.ok("GET", f"/runs/{run_id}")["status"] == "active"
    assert alice.refused("POST", path(chat), body("second", session) | {"on_conflict": "reject"})[0] == 409
    gate.opened.set()
    ended = until(lambda: (run := alice.ok("GET", f"/runs/{run_id}"))["status"] != "active" and run)
    assert ended["outcome"] == "success"


def test_frames_of_two_streams_cannot_be_taken_for_each_other(
    alice: Person, chat: Any, model: ScriptedModel
) -> None:
    """U6."""
    gates = {question: Gate(question) for question in ("q1", "q2")}
    for question, gate in gates.items():
        model.script(question, gate)
    open_streams = {question: alice("POST", path(chat), body(question)) for question in gates}
    for gate in gates.values():
        gate.opened.set()
    named = {}
    for question, response in open_streams.items():
        data = [frame["data"] for frame in frames(response.get_data(as_text=True))][:-1]
        [named[question]] = {(one["id"], one["session_id"], one["run_id"]) for one in data}
        assert text_of(data) == f"{question}done"
    assert not set(named["q1"]) & set(named["q2"])


def test_a_plain_answer_without_a_session_is_one_json_envelope(alice: Person, chat: Any) -> None:
    """C3, C4."""
    response = alice("POST", path(chat), {"question": "hello", "stream": False})
    data = response.get_json()["data"]
    assert response.mimetype == "application/json"
    assert {"answer", "reference", "session_id", "id"} <= data.keys() and "data:" not in data["answer"]
    named = {"conversation_id": data["session_id"], "chat_id": chat["id"], "stream": False}
    assert alice.ok("POST", "/chat/completions", body("next") | named)["session_id"] == data["session_id"]
    for messages in ([], None):
        assert alice.refused("POST", "/chat/completions", named | {"messages": messages})[0] == 101


@pytest.mark.parametrize("answer", [
    lambda: says("Hi"), lambda: says("Hi", chunks=("a",)), says, fails, lambda: fails("par"),
], ids=["text", "passages", "silence", "failure", "half"])
def test_what_the_sdk_reads_is_always_there(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, answer: Any
) -> None:
    """C5: `data.answer` in every event but the terminator, the chunks' keys in the reference."""
    model.script("q", answer)
    for data in stream(alice, chat, "q", session):
        if data is not True:
            assert isinstance(data["answer"], str) and data["reference"] is not None
            chunks = data["reference"].get("chunks", []) if data["reference"] else []
            assert all({"id", "content", "document_id", "document_name", "dataset_id", "image_id", "positions",
                        "similarity", "vector_similarity", "term_similarity"} <= one.keys() for one in chunks)
    data = alice("POST", path(chat), body("q", session) | {"stream": False}).get_json()["data"]
    assert isinstance(data["answer"], str) and "reference" in data and data["id"]


@pytest.mark.parametrize("words", [(), ("a", "b", "c")])
def test_a_stream_ends_by_an_error_or_by_success_never_by_both(
    alice: Person, chat: Any, session: Any, model: ScriptedModel, words: tuple[str, ...]
) -> None:
    """C6."""
    model.script("q", lambda: fails(*words))
    told = frames(alice("POST", path(chat), body("q", session)).get_data(as_text=True))
    assert [frame["code"] for frame in told] == [0] * len(words) + [500]
    assert True not in [frame["data"] for frame in told]


def test_a_failure_is_told_by_fields_and_is_never_an_answer(
    alice: Person, chat: Any, session: Any, model: ScriptedModel
) -> None:
    """C7."""
    model.script("q", fails)
    for streams in (True, False):
        told = alice("POST", path(chat), body("q", session) | {"stream": streams}).get_data(as_text=True)
        assert '"error_code":"MODEL_ERROR"' in told
    ask(alice, chat, "next", session)
    assert "ERROR" not in json.dumps(spoken(alice, session))
    assert "ERROR" not in json.dumps([message["content"] for message in model.requests[-1].messages])


def test_a_bot_bound_to_another_chat_begins_another_session(alice: Person, chat: Any) -> None:
    """C9."""
    other = alice.ok("POST", "/chats", {"name": "other"})
    one, two = (ConversationService.get_or_create_for_channel(c["id"], "bot", "room") for c in (chat, other))
    assert one.id != two.id and (one.dialog_id, two.dialog_id) == (chat["id"], other["id"])
    assert ConversationService.get_or_create_for_channel(chat["id"], "bot", "room").id == one.id
