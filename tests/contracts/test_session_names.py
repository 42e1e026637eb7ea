"""A session that nobody named is named after its first question; a name that somebody gave stays."""

from typing import Any

import pytest

from db.database import connection
from db.ids import new_id
from db.models import Conversation
from services.conversation_service import ConversationService
from tests.conftest import Person
from tests.contracts.wire import ask, at_once, body, later, path, read, runs, stream, twin, until
from tests.factories import ConversationFactory
from tests.fakes import Gate, ScriptedModel, fails

LONG = "How do I connect a model of my own\nwhen it needs a key?"
TITLE = "How do I connect a model of my own"


@pytest.fixture
def unnamed(alice: Person, chat: Any) -> Any:
    return alice.ok("POST", f"/chats/{chat['id']}/sessions", {})


def name_of(person: Person, session: Any) -> Any:
    return read(person, session)["name"]


def rename(person: Person, session: Any, name: Any) -> Any:
    return person.ok("PATCH", f"/chats/{session['chat_id']}/sessions/{session['id']}", {"name": name})


def test_a_session_is_named_after_its_first_question(alice: Person, chat: Any, unnamed: Any) -> None:
    assert unnamed["name"] == "New session"
    stream(alice, chat, LONG, unnamed)
    assert name_of(alice, unnamed) == TITLE
    ask(alice, chat, "And another one?", unnamed)
    assert name_of(alice, unnamed) == TITLE


def test_it_has_its_name_while_the_first_answer_is_given(
    alice: Person, chat: Any, unnamed: Any, gate: Gate, settled: None
) -> None:
    reading = later(lambda: stream(twin(alice), chat, "slow?", unnamed))
    assert gate.reached.wait(10)
    assert name_of(alice, unnamed) == "slow?"
    gate.opened.set()
    reading.result(10)
    assert name_of(alice, unnamed) == "slow?"


def test_a_question_that_says_too_little_leaves_it_to_the_next_one(alice: Person, chat: Any, unnamed: Any) -> None:
    ask(alice, chat, "ok", unnamed)
    assert name_of(alice, unnamed) == "New session"
    ask(alice, chat, LONG, unnamed)
    assert name_of(alice, unnamed) == TITLE


def test_a_failed_answer_takes_no_name_away(
    alice: Person, chat: Any, unnamed: Any, model: ScriptedModel
) -> None:
    model.script("Will it fail?", lambda: fails("Hm"))
    alice.refused("POST", path(chat), body("Will it fail?", unnamed) | {"stream": False})
    assert name_of(alice, unnamed) == "Will it fail?"


@pytest.mark.parametrize("name", ["Mine", "New sessions"])
def test_a_name_that_was_given_stays(alice: Person, chat: Any, name: str) -> None:
    session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": name})
    ask(alice, chat, LONG, session)
    assert name_of(alice, session) == name


@pytest.mark.parametrize("name", ["Mine", None])
def test_a_rename_before_the_first_question_stays(alice: Person, chat: Any, unnamed: Any, name: Any) -> None:
    rename(alice, unnamed, name)
    ask(alice, chat, LONG, unnamed)
    assert name_of(alice, unnamed) == name


def test_a_rename_during_the_run_wins(
    alice: Person, chat: Any, unnamed: Any, gate: Gate, settled: None
) -> None:
    reading = later(lambda: stream(twin(alice), chat, "slow?", unnamed))
    assert gate.reached.wait(10)
    waiting = later(lambda: stream(twin(alice), chat, LONG, unnamed))
    until(lambda: runs(alice, unnamed, "queued"))
    rename(alice, unnamed, "Mine")
    gate.opened.set()
    reading.result(10)
    waiting.result(10)
    assert name_of(alice, unnamed) == "Mine"


def test_a_rename_at_the_very_moment_wins(alice: Person, chat: Any) -> None:
    for n in range(8):
        session = alice.ok("POST", f"/chats/{chat['id']}/sessions", {})
        asking, naming = twin(alice), twin(alice)
        at_once(
            lambda asking=asking, session=session: ask(asking, chat, LONG, session),
            lambda naming=naming, session=session, n=n: rename(naming, session, f"Mine {n}"),
        )
        assert name_of(alice, session) == f"Mine {n}"


def test_a_conversation_begun_elsewhere_is_named_after_its_own_first_question(
    alice: Person, chat: Any, unnamed: Any
) -> None:
    begun = [{"role": "user", "content": "Begun elsewhere?"}, {"role": "assistant", "content": "Yes."}]
    asked = body(LONG, unnamed)
    asked["messages"] = begun + asked["messages"]
    alice.ok("POST", path(chat), asked | {"pass_all_history_messages": True, "stream": False})
    assert name_of(alice, unnamed) == "Begun elsewhere?"


def test_a_channels_session_keeps_its_name(alice: Person, chat: Any) -> None:
    made = ConversationService.get_or_create_for_channel(chat["id"], "bot", "room")
    session = {"id": made.id, "chat_id": chat["id"]}
    ask(alice, chat, LONG, session)
    assert name_of(alice, session) == "channel:bot:room"


@pytest.mark.parametrize(("name", "after"), [("Old talk", "Old talk"), (None, TITLE), ("New session", TITLE)])
def test_another_systems_session_keeps_the_name_that_it_has(
    alice: Person, chat: Any, name: Any, after: str
) -> None:
    with connection():
        made: Conversation = ConversationFactory(
            legacy=True, id=new_id(), tenant_id=alice.tenant_id, dialog_id=chat["id"], name=name
        )
    session = {"id": made.id, "chat_id": chat["id"]}
    ask(alice, chat, LONG, session)
    assert name_of(alice, session) == after


def test_the_name_is_part_of_the_append(alice: Person, chat: Any, unnamed: Any) -> None:
    ask(alice, chat, LONG, unnamed)
    with connection():
        row = Conversation.get_by_id(unnamed["id"])
    assert (row.name, row.name_source, row.revision) == (TITLE, "question", 2)
