"""The session of a channel's chat: one id on every replica, and an older one moves over whole."""

import hashlib
from typing import Any

import pytest

from conf.settings import Settings
from db.database import connection, fetch
from db.document import CONVERSATIONS
from db.models import Conversation, Dialog
from services.conversation_service import ConversationService
from services.errors import NotFound
from services.principal import Principal
from tests.contracts.wire import at_once
from tests.factories import ConversationFactory, DialogFactory

TENANT = "acme"
pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def dialog(store: Settings) -> Dialog:
    with connection():
        return DialogFactory(tenant_id=TENANT)


def key(dialog_id: str, channel_id: str = "bot", chat_id: str = "room") -> bytes:
    return f"{dialog_id}:{channel_id}:{chat_id}".encode()


def sha(dialog_id: str, *more: str) -> str:
    return hashlib.sha256(key(dialog_id, *more)).hexdigest()[:32]


def md5(dialog_id: str, *more: str) -> str:
    return hashlib.md5(key(dialog_id, *more), usedforsecurity=False).hexdigest()


def session(dialog: Dialog, **more: Any) -> Any:
    return ConversationService.get_or_create_for_channel(dialog.id, "bot", "room", **more)


def turns(id: str, count: int) -> None:
    with connection():
        for n in range(count):
            entries = [
                {"role": role, "content": f"{role} {n} " + "x" * 200, "id": f"t{n}"} for role in ("user", "assistant")
            ]
            CONVERSATIONS.append(TENANT, id, entries, [{"message_id": f"t{n}", "chunks": [], "doc_aggs": []}])


def test_makes_an_empty_session_under_the_digest_of_its_three_names(dialog: Dialog) -> None:
    made = session(dialog)
    assert made.id == sha(dialog.id)
    assert (made.tenant_id, made.dialog_id, made.user_id) == (TENANT, dialog.id, None)
    assert made.name == "channel:bot:room"
    text = ConversationService.text(Principal(TENANT), made.id)
    assert (text.array(0), text.array(1)) == (b"[]", b"[]")


def test_a_given_name_is_kept_and_cut(dialog: Dialog) -> None:
    assert session(dialog, name="Ann" * 100).name == ("Ann" * 100)[:255]


def test_the_second_call_finds_what_the_first_one_made(dialog: Dialog) -> None:
    first = session(dialog)
    turns(first.id, 1)
    again = session(dialog, name="other")
    assert (again.id, again.name, again.message_count) == (first.id, "channel:bot:room", 2)


@pytest.mark.parametrize("other", [("bot", "hall"), ("bot2", "room"), ("bot:room", ""), ("", "bot:room")])
def test_another_chat_or_channel_is_another_session(dialog: Dialog, other: tuple[str, str]) -> None:
    assert ConversationService.get_or_create_for_channel(dialog.id, *other).id != session(dialog).id


@pytest.mark.settings(document={"page_bytes": 1_000})
def test_an_older_row_moves_over_with_its_pages_and_its_index(dialog: Dialog) -> None:
    with connection():
        ConversationFactory(id=md5(dialog.id), tenant_id=TENANT, dialog_id=dialog.id, name="old", user_id="u1")
    turns(md5(dialog.id), 12)
    with connection():
        before = CONVERSATIONS.load(TENANT, md5(dialog.id))
    moved = session(dialog)
    with connection():
        after = CONVERSATIONS.load(TENANT, moved.id)
        assert [row.id for row in Conversation.select(Conversation.id)] == [moved.id] == [sha(dialog.id)]
        left = fetch("""SELECT conversation_id FROM {conversation_page}
            UNION SELECT conversation_id FROM {message_index}""")
        assert CONVERSATIONS.find_turn(TENANT, moved.id, "t3") == 7
    assert (after.entries, after.slots) == (before.entries, before.slots) and len(after.entries) == 24
    assert (moved.name, moved.user_id, moved.page_count > 0) == ("old", "u1", True)
    assert left == [(moved.id,)]


def test_an_older_row_of_another_system_moves_over_and_is_written_on(dialog: Dialog) -> None:
    message = [{"role": "user", "content": "u1", "id": "t0"}, {"role": "assistant", "content": "a1", "id": "t0"}]
    with connection():
        ConversationFactory(legacy=True, id=md5(dialog.id), tenant_id=TENANT, dialog_id=dialog.id, message=message)
    moved = session(dialog)
    with connection():
        CONVERSATIONS.append(TENANT, moved.id, [{"role": "user", "content": "u2", "id": "t2"}])
        entries = CONVERSATIONS.load(TENANT, moved.id).entries
    assert [entry["content"] for entry in entries] == ["u1", "a1", "u2"]


def test_where_both_rows_are_there_the_newer_one_is_the_session(dialog: Dialog) -> None:
    made = session(dialog)
    turns(made.id, 1)
    with connection():
        ConversationFactory(id=md5(dialog.id), tenant_id=TENANT, dialog_id=dialog.id)
    again = session(dialog)
    assert (again.id, again.message_count) == (made.id, 2)


@pytest.mark.parametrize("old", [False, True])
def test_twenty_callers_at_once_get_one_session(dialog: Dialog, old: bool) -> None:
    if old:
        with connection():
            ConversationFactory(id=md5(dialog.id), tenant_id=TENANT, dialog_id=dialog.id)
        turns(md5(dialog.id), 1)
    made = at_once(*([lambda: session(dialog)] * 20))
    assert {row.id for row in made} == {sha(dialog.id)}
    with connection():
        assert [row.id for row in Conversation.select(Conversation.id)] == [sha(dialog.id)]
    assert {row.message_count for row in made} == {2 if old else 0}


def test_an_unknown_dialog_has_no_sessions(dialog: Dialog) -> None:
    with pytest.raises(NotFound):
        ConversationService.get_or_create_for_channel("unknown", "bot", "room")
    with connection():
        assert Conversation.select().count() == 0


def test_the_tenant_is_the_dialogs(dialog: Dialog) -> None:
    made = session(dialog)
    assert ConversationService.get_by_id(Principal(TENANT), made.id).id == made.id
    with pytest.raises(NotFound):
        ConversationService.get_by_id(Principal("stranger"), made.id)
