"""What is due goes, whole, and only when it is asked; what isn't, stays, whosever it is."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli import main
from conf.settings import Settings
from db.database import change, connection, fetch
from db.document import CONVERSATIONS
from db.models import ApiToken, Dialog, now_ms
from services.api4_conversation_service import API4ConversationService
from services.api_tokens import ApiTokenService
from services.conversation_service import ConversationService
from services.dialog_service import DialogService
from services.doctor import Doctor
from services.principal import Principal
from services.pruning import BATCH, Due, Pruning
from services.runs.rows import RunService
from services.runs.values import Start
from tests.factories import DialogFactory
from tests.invariants import assert_sound

ALICE, CHARLIE = Principal("acme"), Principal("stranger")
DAY = 86_400_000


def a_chat(principal: Principal, sessions: int = 1, deleted: float | None = None) -> Dialog:
    """A chat with sessions of both kinds, of which one was asked something; deleted so many days ago."""
    with connection():
        dialog: Dialog = DialogFactory(tenant_id=principal.tenant_id)
    for _ in range(sessions):
        ConversationService.create(principal, dialog)
    session = API4ConversationService.create(principal, dialog)
    start = Start(principal.tenant_id, session.id, {"role": "user", "content": "Why?", "id": "t"},
                  API4ConversationService.document)
    RunService.begin(start, "elsewhere:1:1", 3600)
    with connection():
        change("INSERT INTO {run_event} (run_id, n, payload) VALUES (%s, 1, '[]')", [start.id])
    ApiTokenService.create(principal, chat_id=dialog.id)
    if deleted is not None:
        DialogService.delete(principal, [dialog.id])
        with connection():
            Dialog.update(update_time=now_ms() - int(deleted * DAY)).where(Dialog.id == dialog.id).execute()
    return dialog


def rows(dialog: Dialog) -> dict[str, int]:
    """How many rows of each table belong to this chat."""
    sessions = """(SELECT id FROM {conversation} WHERE dialog_id = %s
        UNION ALL SELECT id FROM {api_4_conversation} WHERE dialog_id = %s)"""
    whose = {
        "conversation": "dialog_id = %s", "api_4_conversation": "dialog_id = %s", "dialog": "id = %s",
        "api_token": "dialog_id = %s", "message_index": f"conversation_id IN {sessions}",
        "run": f"conversation_id IN {sessions}",
    }
    with connection():
        return {
            table: fetch(f"SELECT count(*) FROM {{{table}}} WHERE {where}", [dialog.id] * where.count("%s"))[0][0]
            for table, where in whose.items()
        }


NOTHING = dict.fromkeys(("conversation", "api_4_conversation", "dialog", "api_token", "message_index", "run"), 0)


def test_a_chat_deleted_for_long_goes_with_all_that_belongs_to_it(store: Settings) -> None:
    due, kept = a_chat(ALICE, 2, deleted=31), [
        a_chat(ALICE), a_chat(ALICE, deleted=1), a_chat(ALICE, deleted=29.9), a_chat(CHARLIE),
        a_chat(CHARLIE, deleted=1),
    ]
    before = [rows(dialog) for dialog in kept]
    assert rows(due) == {"conversation": 2, "api_4_conversation": 1, "dialog": 1, "api_token": 1, "message_index": 4,
                         "run": 1}
    pruning = Pruning(30)
    assert pruning.due() == Due(3, 1, 1)
    assert rows(due)["conversation"] == 2, "counting changes nothing"
    assert Doctor(30).due() == 3
    assert pruning.erase() == Due(3, 1, 1)
    assert rows(due) == NOTHING
    assert [rows(dialog) for dialog in kept] == before
    with connection():
        assert fetch("SELECT count(*) FROM {run_event}") == [(len(kept),)]
    assert (Pruning(30).due(), Pruning(30).erase()) == (Due(0, 0, 0), Due(0, 0, 0))
    assert list(Doctor(30).examine()) == []


def test_every_tenants_due_chats_go(store: Settings) -> None:
    chats = [a_chat(principal, deleted=40) for principal in (ALICE, CHARLIE)]
    assert Pruning(30).erase() == Due(4, 2, 2)
    assert [rows(dialog) for dialog in chats] == [NOTHING] * 2


def test_more_sessions_than_a_batch_go_and_are_told_as_they_go(store: Settings) -> None:
    dialog = a_chat(ALICE, BATCH + 1, deleted=31)
    told: list[int] = []
    assert Pruning(30).erase(told.append).sessions == BATCH + 2
    assert told == [BATCH, BATCH + 1, BATCH + 2]
    assert rows(dialog) == NOTHING


def test_a_chat_that_is_wanted_again_meanwhile_keeps_what_it_has(store: Settings) -> None:
    dialog = a_chat(ALICE, BATCH + 1, deleted=31)

    def revive(sessions: int) -> None:
        with connection():
            Dialog.update(status="1").where(Dialog.id == dialog.id).execute()

    assert Pruning(30).erase(revive) == Due(BATCH, 0, 0)
    assert (rows(dialog)["conversation"], rows(dialog)["dialog"], rows(dialog)["api_token"]) == (1, 1, 1)


def test_a_session_of_another_tenant_under_a_due_chat_stays(store: Settings) -> None:
    dialog = a_chat(ALICE, deleted=31)
    with connection():
        theirs = CONVERSATIONS.create({"tenant_id": CHARLIE.tenant_id, "dialog_id": dialog.id}).id
    Pruning(30).erase()
    with connection():
        assert_sound(theirs)
    assert rows(dialog) == NOTHING | {"conversation": 1, "dialog": 1, "api_token": 1}


@pytest.mark.parametrize(("column", "days", "goes"), [
    ("revoked_time", 31, True), ("revoked_time", 29, False), ("expires_time", 31, True), ("expires_time", -1, False),
])
def test_a_token_goes_when_it_has_been_of_no_use_for_long(
    store: Settings, column: str, days: int, goes: bool
) -> None:
    kept, _ = ApiTokenService.create(ALICE)
    old, _ = ApiTokenService.create(CHARLIE)
    with connection():
        ApiToken.update({column: now_ms() - days * DAY}).where(ApiToken.id == old.id).execute()
    assert Pruning(30).due() == Pruning(30).erase() == Due(0, 0, int(goes))
    with connection():
        assert {row.id for row in ApiToken.select()} == {kept.id} | (set() if goes else {old.id})


@pytest.mark.parametrize(("arguments", "erased"), [([], False), (["--yes"], True)])
def test_the_command_erases_only_when_it_is_told_to(store: Settings, arguments: list[str], erased: bool) -> None:
    dialog = a_chat(ALICE, deleted=31)

    def invoke(*more: str) -> Any:
        done = CliRunner(env={"CHATKEEP_DATABASE_URL": store.database.url}).invoke(main, ["prune", *arguments, *more])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert json.loads(invoke("--json")) == {"sessions": 2, "chats": 1, "tokens": 1, "erased": erased}
    assert (rows(dialog) == NOTHING) == erased
    assert invoke().startswith("0 sessions, 0 chats and 0 tokens are erased" if erased else "2 sessions, 1 chats")
