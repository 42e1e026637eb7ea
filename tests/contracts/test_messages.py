"""Deleting a turn and voting on an answer: ragflow.md 2.2, with design.md §3 and §7.11 for what RAGFlow gets wrong.

Every test runs with the session's turns in the open page, and with each of them sealed in a page of its own.
"""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

from urllib.parse import quote

import pytest

from db.database import connection
from db.models import Conversation, MessageIndex
from tests.contracts.shared_server import acme, alice, app, bob, models  # noqa: F401
from tests.factories import ConversationFactory
from tests.fakes import Gate, says

NO_SESSION = (102, "Session not found!")
NO_BOOLEAN = (102, "thumbup must be a boolean")


@pytest.fixture(scope="module", params=[16_384, 1], ids=["open page", "sealed pages"])
def overrides(request):
    """Where the turns stand: a page is sealed when it is over this many bytes."""
    return {"document": {"page_bytes": request.param}}


@pytest.fixture
def ask(alice, model):
    """Asks `q1` under the id `t1`, answered with a passage of its own."""

    def asked(chat, session, n):
        model.script(f"q{n}", lambda: says(f"answer {n}", chunks=(f"c{n}",)))
        question = {"role": "user", "content": f"q{n}", "id": f"t{n}"}
        body = {"session_id": session["id"], "messages": [question], "stream": False}
        assert alice.ok("POST", f"/chats/{chat['id']}/completions", body)["answer"] == f"answer {n}"

    return asked


@pytest.fixture
def talk(alice, chat, session, ask):
    """A session of two turns, as it is read."""
    for n in (1, 2):
        ask(chat, session, n)
    return alice.ok("GET", f"/chats/{chat['id']}/sessions?id={session['id']}")[0]


@pytest.fixture
def path(talk):
    return f"/chats/{talk['chat_id']}/sessions/{talk['id']}/messages"


@pytest.fixture
def read(alice, talk):
    return lambda: alice.ok("GET", f"/chats/{talk['chat_id']}/sessions?id={talk['id']}")[0]


ODD_IDS = (
    "a/b", "a/b/c", "x/feedback", "feedback", "messages/x", ".a", "..a", "...", "a.", "a/.b", "a/...", "a?b#c%", "%2F",
    " a ", "e\u0301\U0001f600 x", "\u202e", "a+b&c=d;e", "\\", '"', "\u00a0", "a:b@c",
)


@pytest.mark.parametrize("id", ODD_IDS)
def test_every_id_that_a_question_may_have_can_be_voted_on_and_deleted(alice, talk, path, read, id):
    body = {"session_id": talk["id"], "messages": [{"role": "user", "content": "odd", "id": id}], "stream": False}
    answer = alice.ok("POST", f"/chats/{talk['chat_id']}/completions", body)
    assert answer["id"] == id
    one = f"{path}/{quote(id, safe='')}"
    assert alice.ok("PUT", f"{one}/feedback", {"thumbup": True})["messages"][-1]["thumbup"] is True
    kept = [message.get("id") for message in alice.ok("DELETE", one)["messages"]]
    assert kept == [None, "t1", "t1", "t2", "t2"]


@pytest.mark.parametrize("id", [
    ".", "..", "/", "/a", "a/", "a//b", "a/.", "a/..", "./a", "../a", "a/../b", "a/./b", "a\n", "\ta", "a\x7fb",
    "a\x85", "a/\x1f",
])
def test_an_id_that_no_path_can_hold_is_refused_and_nothing_is_asked(alice, talk, path, read, id):
    for more in ({}, {"pass_all_history_messages": True}):
        body = {"session_id": talk["id"], "messages": [{"role": "user", "content": "odd", "id": id}]} | more
        code, message = alice.refused("POST", f"/chats/{talk['chat_id']}/completions", body)
        assert (code, "`id` stands in paths" in message) == (101, True)
    assert len(read()["messages"]) == len(talk["messages"])


def row(session):
    with connection():
        return Conversation.select().where(Conversation.id == session["id"]).dicts().get()


def imported(chat, entries, slots):
    """A session of this chat as another system left it."""
    with connection():
        return ConversationFactory(
            legacy=True, tenant_id=chat["tenant_id"], dialog_id=chat["id"], message=entries, reference=slots
        )


def said(session):
    return [(message.get("id"), message["role"], message["content"]) for message in session["messages"]]


def cited(session):
    return [(slot["message_id"], [chunk["id"] for chunk in slot["chunks"]]) for slot in session["reference"]]


PROLOGUE = (None, "assistant", "Welcome.")
FIRST = [("t1", "user", "q1"), ("t1", "assistant", "answer 1")]
SECOND = [("t2", "user", "q2"), ("t2", "assistant", "answer 2")]


# -- DELETE .../messages/<id> -------------------------------------------------------------------


def test_a_turn_is_its_question_its_answer_and_their_reference(talk):
    assert said(talk) == [PROLOGUE, *FIRST, *SECOND]
    assert cited(talk) == [("t1", ["c1"]), ("t2", ["c2"])]


@pytest.mark.parametrize(("gone", "left", "slots"), [
    ("t1", SECOND, [("t2", ["c2"])]), ("t2", FIRST, [("t1", ["c1"])]),
], ids=["first", "last"])
def test_deleting_a_turn_takes_its_own_reference_with_it(alice, path, read, gone, left, slots):
    changed = alice.ok("DELETE", f"{path}/{gone}")
    assert (said(changed), cited(changed)) == ([PROLOGUE, *left], slots)
    assert changed == read()
    assert "avatar" not in changed


def test_without_a_prologue_the_first_turn_takes_no_other_reference(alice, ask):
    chat = alice.ok("POST", "/chats", {"name": "silent", "prompt_config": {"prologue": ""}})
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions")
    for n in (1, 2):
        ask(chat, session, n)
    changed = alice.ok("DELETE", f"/chats/{chat['id']}/sessions/{session['id']}/messages/t1")
    assert (said(changed), cited(changed)) == (SECOND, [("t2", ["c2"])])


def test_what_is_left_stays_as_it_was(alice, path, talk):
    changed = alice.ok("DELETE", f"{path}/t1")
    assert changed["messages"] == [entry for entry in talk["messages"] if entry.get("id") != "t1"]
    assert changed["reference"] == talk["reference"][1:]
    assert changed["update_time"] >= talk["update_time"]


def test_a_session_can_be_emptied_and_goes_on_with_new_numbers(alice, chat, path, talk, ask, read):
    for id in ("t2", "t1"):
        alice.ok("DELETE", f"{path}/{id}")
    assert (said(read()), read()["reference"]) == ([PROLOGUE], [])
    ask(chat, talk, 3)
    assert cited(read()) == [("t3", ["c3"])]
    assert [entry["seq"] for entry in read()["messages"]] == [1, 6, 7]


def test_counters_and_index_forget_a_deleted_turn(alice, path, talk):
    alice.ok("DELETE", f"{path}/t1")
    with connection():
        assert MessageIndex.select().where(MessageIndex.conversation_id == talk["id"]).count() == 3
    assert (row(talk)["message_count"], row(talk)["next_seq"]) == (3, 6)


@pytest.mark.parametrize("ids", [
    ["unknown", "q1", "T1", "t1%20", "%ED%A0%80", "x" * 300], ["%00", "t1%00"],
], ids=["unknown", "with NUL"])
def test_an_unknown_id_changes_nothing_and_is_a_success(alice, path, talk, ids):
    before = row(talk)
    for id in ids:
        assert alice.ok("DELETE", f"{path}/{id}") == talk
        assert alice.ok("PUT", f"{path}/{id}/feedback", {"thumbup": True}) == talk
    assert row(talk) == before


def test_deleting_twice_is_deleting_once(alice, path, talk):
    once = alice.ok("DELETE", f"{path}/t1")
    before = row(talk)
    assert alice.ok("DELETE", f"{path}/t1") == once
    assert row(talk) == before


def test_no_id_finds_the_prologue(alice, path, talk):
    uid = talk["messages"][0]["uid"]
    assert alice.ok("DELETE", f"{path}/{uid}") == talk
    assert alice.ok("PUT", f"{path}/{uid}/feedback", {"thumbup": True}) == talk


@pytest.mark.parametrize(("method", "tail"), [("DELETE", ""), ("PUT", "/feedback")], ids=["delete", "feedback"])
def test_a_turn_of_a_session_elsewhere_is_not_found(alice, talk, read, method, tail):
    other = alice.ok("POST", "/chats", {"name": "other"})
    for session_id in ("unknown", talk["id"]):
        path = f"/chats/{other['id']}/sessions/{session_id}/messages/t1{tail}"
        assert alice.refused(method, path, {"thumbup": True}) == NO_SESSION
    assert read() == talk


def test_a_question_without_its_answer_is_no_pair_to_delete(alice, chat):
    entries = [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "alone", "id": "m"}]
    session = imported(chat, entries, [])
    code, _ = alice.refused("DELETE", f"/chats/{chat['id']}/sessions/{session.id}/messages/m")
    assert code == 102
    assert [entry["content"] for entry in row({"id": session.id})["message"]] == ["Hi", "alone"]


def test_a_turn_of_an_imported_session_is_deleted_with_its_reference(alice, chat):
    entries = [{"role": "assistant", "content": "Hi"}]
    for n in (1, 2):
        entries += [{"role": role, "content": role, "id": f"m{n}"} for role in ("user", "assistant")]
    slots = [{"chunks": [{"chunk_id": f"k{n}", "content_with_weight": "x"}], "doc_aggs": []} for n in (1, 2)]
    session = imported(chat, entries, slots)
    changed = alice.ok("DELETE", f"/chats/{chat['id']}/sessions/{session.id}/messages/m1")
    assert [entry.get("id") for entry in changed["messages"]] == [None, "m2", "m2"]
    assert cited(changed) == [("m2", ["k2"])]


@pytest.fixture
def running(alice, model, path, talk):
    """A third turn, `t3`, that is being answered while the test runs."""
    gate = Gate("partly")
    model.script("q3", gate)
    body = {"session_id": talk["id"], "messages": [{"role": "user", "content": "q3", "id": "t3"}]}
    answer = alice("POST", f"/chats/{talk['chat_id']}/completions", body)
    assert gate.reached.wait(10)
    yield
    gate.opened.set()
    assert '"data":true' in answer.get_data(as_text=True)


@pytest.mark.parametrize(("method", "tail"), [("DELETE", ""), ("PUT", "/feedback")], ids=["delete", "feedback"])
def test_a_turn_that_is_being_answered_is_busy(alice, path, talk, running, method, tail):
    before = row(talk)
    answer = alice(method, f"{path}/t3{tail}", {"thumbup": True})
    assert (answer.status_code, answer.get_json()["code"]) == (409, 409)
    assert int(answer.headers["Retry-After"]) >= 1
    assert row(talk) == before


def test_another_turn_can_be_deleted_while_one_is_being_answered(alice, path, running):
    changed = alice.ok("DELETE", f"{path}/t1")
    assert said(changed) == [PROLOGUE, *SECOND, ("t3", "user", "q3")]


# -- PUT .../messages/<id>/feedback -------------------------------------------------------------


def answer_of(session, id="t1"):
    return next(entry for entry in session["messages"] if entry.get("id") == id and entry["role"] == "assistant")


def test_a_vote_up_stands_on_the_answer_alone(alice, path, talk, read):
    changed = alice.ok("PUT", f"{path}/t1/feedback", {"thumbup": True, "feedback": "not kept"})
    assert answer_of(changed) == answer_of(talk) | {"thumbup": True}
    others = [entry for entry in changed["messages"] if entry != answer_of(changed)]
    assert others == [entry for entry in talk["messages"] if entry != answer_of(talk)]
    assert changed["reference"] == talk["reference"]
    assert changed == read()


def test_a_vote_down_keeps_its_text(alice, path):
    for text in ("wrong source", "\u4e2d\u6587 \U0001f600", {"reason": ["a", 1.5, None]}, ["x"]):
        changed = alice.ok("PUT", f"{path}/t2/feedback", {"thumbup": False, "feedback": text})
        assert (answer_of(changed, "t2")["thumbup"], answer_of(changed, "t2")["feedback"]) == (False, text)
        assert "thumbup" not in answer_of(changed, "t1")


def test_a_vote_down_without_a_text_keeps_the_older_text(alice, path):
    alice.ok("PUT", f"{path}/t1/feedback", {"thumbup": False, "feedback": "older"})
    for more in ({}, {"feedback": ""}, {"feedback": None}):
        changed = alice.ok("PUT", f"{path}/t1/feedback", {"thumbup": False} | more)
        assert answer_of(changed)["feedback"] == "older"


def test_a_vote_up_removes_the_text(alice, path):
    alice.ok("PUT", f"{path}/t1/feedback", {"thumbup": False, "feedback": "older"})
    changed = alice.ok("PUT", f"{path}/t1/feedback", {"thumbup": True})
    assert answer_of(changed)["thumbup"] is True
    assert "feedback" not in answer_of(changed)


@pytest.mark.parametrize(("body", "vote"), [
    ({"set": True}, True), ({"set": False}, False), ({"thumbup": False, "set": True}, False),
], ids=["up", "down", "thumbup goes first"])
def test_set_is_read_where_there_is_no_thumbup(alice, path, body, vote):
    assert answer_of(alice.ok("PUT", f"{path}/t1/feedback", body))["thumbup"] is vote


NO_VOTES = [
    {}, None, {"thumbup": 1}, {"thumbup": 0}, {"thumbup": "true"}, {"thumbup": None}, {"thumbup": [True]}, {"set": "x"},
    {"feedback": "text alone"}, {"thumbup": None, "set": True},
]


def test_a_vote_that_is_no_boolean_changes_nothing(alice, path, talk):
    before = row(talk)
    for body in NO_VOTES:
        assert (body, alice.refused("PUT", f"{path}/t1/feedback", body)) == (body, NO_BOOLEAN)
    assert row(talk) == before


def test_a_vote_is_checked_before_the_id(alice, path):
    assert alice.refused("PUT", f"{path}/unknown/feedback", {"thumbup": 1}) == NO_BOOLEAN


def test_a_text_beyond_16_kb_is_an_argument_error(alice, path, talk):
    before = row(talk)
    body = {"thumbup": False, "feedback": "x" * 16_400}
    assert alice.refused("PUT", f"{path}/t1/feedback", body)[0] == 101
    assert row(talk) == before


def test_a_vote_survives_the_next_question(alice, chat, talk, path, ask, read):
    alice.ok("PUT", f"{path}/t2/feedback", {"thumbup": False, "feedback": "older"})
    ask(chat, talk, 3)
    assert answer_of(read(), "t2")["feedback"] == "older"
    assert cited(read()) == [("t1", ["c1"]), ("t2", ["c2"]), ("t3", ["c3"])]


def test_a_second_token_of_the_tenant_votes_on_the_same_answer(bob, path, read):
    bob.ok("PUT", f"{path}/t1/feedback", {"thumbup": True})
    assert answer_of(read())["thumbup"] is True
