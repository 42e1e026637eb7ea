"""The life of a server that knows the first migration only: all that its database can hold, made by that server.

`python -m tests.db.make_fixture` runs this file against the code of that time, so it may use only what was there.
"""

import json
import socket
import sys
from typing import Any

from peewee import Database

from api.app import close_app, create_app
from conf.settings import load_settings
from db.database import connection, database
from db.document import API4_CONVERSATIONS, CONVERSATIONS, PagedDocument
from db.ids import legacy_channel_session_id
from db.models import ApiToken, ChatChannel, Dialog
from services.api4_conversation_service import API4ConversationService
from services.api_tokens import ApiTokenService, TenantService
from services.conversation_service import ConversationService
from services.events import FinishReason, TextDelta
from services.knowledge.datasets import DatasetService
from services.messages import adopt
from services.principal import Principal
from services.runs import journal
from services.runs.rows import RunService
from services.runs.values import Start
from tests.conftest import Person
from tests.contracts.wire import ask, later, read, runs, until
from tests.db.test_legacy import SHAPES, said
from tests.fakes import Gate, ScriptedModels, chunk, fails, says

GONE = "gone-server:1:1.0"  # the owner of what nobody ended
PROLOGUE = "Willkommen! 你好. \U0001f600"
TEXTS = {
    "harbour.md": "# Harbour\n\n## Mooring\n\nA ferry moors at pier seven, the spring line first.\n\n"
                  "## Fog\n\nIn fog the horn sounds every ninety seconds. Größe zählt.\n",
    "港口.md": "# 港口\n\n渡船在七号码头停泊。雾中每九十秒鸣笛一次。\n",
}
# What an import may find in a column, beside the shapes of tests/db/test_legacy.py.
ODD: dict[str, Any] = {
    "null": None, "no text": "", "a text of an object": "{}", "an object": {"role": "user", "content": "an object"},
    "a text of an array": '[{"role": "user", "content": "a text"}]', "a JSON text": '"words"', "words": "[broken",
}


def schema_statements() -> list[str]:
    """A list that gets every statement from now on that makes or alters a table."""
    seen: list[str] = []
    execute = Database.execute_sql

    def listening(self: Database, sql: str, params: Any = None) -> Any:
        if sql.startswith(("CREATE", "ALTER")):
            seen.append(sql)
        return execute(self, sql, params)

    Database.execute_sql = listening
    return seen


class OldLife:
    """One server, Alice's chats on it, and what has to be known of them later: the facts."""

    def __init__(self, url: str) -> None:
        socket.gethostname = lambda: "old-server"  # owners' names stay in the rows
        self.models = ScriptedModels()
        schema = schema_statements()
        settings = load_settings(database={"url": url}, document={"page_bytes": 700})
        self.app = create_app(settings, models=self.models)
        self.me = Principal(TenantService.ensure("acme").id)
        names = ("backend", "revoked", "expired")
        self.secrets = {name: ApiTokenService.create(self.me, name)[1] for name in names}
        self.alice = Person(self.app.test_client(), self.secrets["backend"], self.me.tenant_id)
        self.chat = self.alice.ok("POST", "/chats", {"name": "Größe", "prompt_config": {"prologue": PROLOGUE}})
        with connection():
            self.dialog = Dialog.get_by_id(self.chat["id"])
        self.facts: dict[str, Any] = {"schema": schema, "secrets": self.secrets, "chat": self.chat["id"]}

    def live(self) -> dict[str, Any]:
        self.tokens()
        self.datasets()
        self.sessions()
        self.edited()
        self.channels()
        self.agents()
        self.others_arrays()
        self.runs()
        self.stops_in_the_middle()
        self.dies()
        return self.facts | {"wire": self.wire()}

    def new(self, name: str, **more: Any) -> Any:
        return self.alice.ok("POST", f"/chats/{self.chat['id']}/sessions", {"name": name, **more})

    def ask(self, session: Any, question: str, *words: str, **more: Any) -> Any:
        self.models.default.script(question, lambda: says(*(words or ("An answer ", "in two parts.")), **more))
        return ask(self.alice, self.chat, question, session)

    def tokens(self) -> None:
        self.secrets["embed"] = ApiTokenService.create(self.me, chat_id=self.chat["id"], origins=["https://a.example"])[1]
        self.secrets["stranger"] = ApiTokenService.create(Principal(TenantService.ensure("stranger").id))[1]
        ApiTokenService.revoke(self.me, self.secrets["revoked"])
        with connection():
            ApiToken.update(expires_time=1).where(ApiToken.name == "expired").execute()

    def datasets(self) -> None:
        dataset = DatasetService.create(self.me, "handbook", "of the harbour")
        for name, text in TEXTS.items():
            DatasetService.add_text(self.me, dataset.id, name, text, f"docs/{name}")
        DatasetService.create(self.me, "empty")
        searching = {"name": "searching", "dataset_ids": [dataset.id], "llm_id": "other-model"}
        self.facts |= {"dataset": dataset.id, "searching": self.alice.ok("POST", "/chats", searching)["id"]}
        gone = self.alice.ok("POST", "/chats", {"name": "deleted"})
        self.alice.ok("POST", f"/chats/{gone['id']}/sessions", {"name": "of a deleted chat"})
        self.alice.ok("DELETE", f"/chats/{gone['id']}")

    def sessions(self) -> None:
        """Questions and answers alone, over many pages; and what RAGFlow's wire can't show."""
        self.new("opened only", user_id="visitor 1")
        long = self.new("long")
        for n in range(12):
            self.ask(long, f"Question {n}: wie groß? \u2028", f"Antwort {n} ", "\U0001f6a2 " * 20, chunks=(f"c{n}",))
        tools = self.new("tools")
        call = {"id": "call-1", "type": "function", "function": {"name": "look", "arguments": "{\"a\": 1}"}}
        turn: list[dict[str, Any]] = [
            {"role": "user", "content": "Look it up."}, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "42", "tool_call_id": "call-1", "tool_name": "look"},
            {"role": "assistant", "content": [{"type": "text", "text": "It is 42."}], "finish_reason": "stop"},
        ]
        with connection():
            CONVERSATIONS.append(self.me.tenant_id, tools["id"], [entry | {"id": "turn-1"} for entry in turn],
                                 [{"message_id": "turn-1", "chunks": [chunk("t")], "doc_aggs": []}])

    def edited(self) -> None:
        session = self.new("edited")
        asked = [self.ask(session, f"Edit {n}", f"answer {n} " * 30)["id"] for n in range(6)]
        at = f"/chats/{self.chat['id']}/sessions/{session['id']}"
        self.alice.ok("PUT", f"{at}/messages/{asked[0]}/feedback", {"thumbup": False, "feedback": "wrong"})
        self.alice.ok("DELETE", f"{at}/messages/{asked[1]}")
        with connection():
            seq = CONVERSATIONS.first_seq(session["id"], asked[5])
        ConversationService.rewind(self.me, session["id"], seq or 0)
        self.ask(session, "After the rewind")

    def channels(self) -> None:
        with connection():
            ChatChannel.create(tenant_id=self.me.tenant_id, name="bot", channel="telegram", chat_id=self.chat["id"])
        new = ConversationService.get_or_create_for_channel(self.chat["id"], "telegram", "new")
        old_id = legacy_channel_session_id(self.chat["id"], "telegram", "old")
        ConversationService.create(self.me, self.dialog, "channel:telegram:old", id=old_id)
        for id in (new.id, old_id):
            self.ask({"id": id}, f"From the platform to {id[:4]}")

    def agents(self) -> None:
        session = API4ConversationService.create(self.me, self.dialog, "agent", "visitor 2", source="agent")
        for n in range(5):
            turn = said(f"{n} of an agent " + "x" * 150, id=f"agent-{n}")
            entries = [entry | {"uid": f"agent-{n}-{entry['role']}"} for entry in turn]
            found = {"message_id": f"agent-{n}", "chunks": [chunk(f"a{n}")], "doc_aggs": []}
            API4ConversationService.append_message(self.me, session.id, entries, found, 7, 0.5)
        reference = {"chunks": {"c1": {"id": "c1"}, "c2": {"id": "c2"}}, "doc_aggs": {"a.md": {"doc_name": "a.md"}}}
        self.import_row(API4_CONVERSATIONS, "agent of another system", *adopt(said("1"), reference))

    def others_arrays(self) -> None:
        """Format 0: as another system wrote them."""
        for name, (message, reference, _) in SHAPES.items():
            self.import_row(CONVERSATIONS, name, message, reference)
        for name, found in ODD.items():
            self.import_row(CONVERSATIONS, f"odd: {name}", *adopt(found, found))

    def import_row(self, document: PagedDocument, name: str, message: list[Any], reference: list[Any]) -> None:
        with connection():
            document.row.create(
                tenant_id=self.me.tenant_id, dialog_id=self.chat["id"], name=name, name_source="user",
                format=0, next_seq=0, message=message, reference=reference,
            )

    def runs(self) -> None:
        """One of each ending; their journals are there still."""
        session = self.new("endings")
        self.ask(session, "to the end")
        self.ask(session, "too long", "cut ", "off", finish=FinishReason.LENGTH)
        self.models.default.script("that fails", lambda: fails("Half an "))
        self.alice("POST", f"/chats/{self.chat['id']}/completions",
                   {"question": "that fails", "session_id": session["id"], "stream": False})
        self.interrupted(session, "to be cancelled", lambda run: self.alice.ok("POST", f"/runs/{run['id']}/cancel"))
        self.lost()
        nothing_kept = {"question": "kept nowhere", "store_history_messages": False, "pass_all_history_messages": True}
        self.alice.ok("POST", f"/chats/{self.chat['id']}/completions", nothing_kept | {"stream": False})

    def interrupted(self, session: Any, question: str, stop: Any) -> None:
        gate = Gate("Half ", "of it ")
        self.models.default.script(question, gate)
        asking = later(lambda: ask(self.alice, self.chat, question, session))
        assert gate.reached.wait(10)
        stop(until(lambda: runs(self.alice, session, "active"))[0])
        asking.result(30)
        gate.opened.set()

    def lost(self) -> None:
        """A run whose owner never came back, ended by this server with what its journal had."""
        session = self.new("lost")
        self.left_alone(session, "lost-1", "Where are you?")
        until(lambda: runs(self.alice, session, "interrupted"))

    def left_alone(self, session: Any, turn_id: str, question: str) -> Start:
        """A run of a server that said two words and was never seen again."""
        start = Start(self.me.tenant_id, session["id"], {"role": "user", "id": turn_id, "content": question})
        events = [TextDelta("I am "), TextDelta("still ")]
        with connection():
            RunService.begin(start, GONE, 1)
            journal.write(GONE, [(start.id, len(events), journal.encode(events))])
        return start

    def stops_in_the_middle(self) -> None:
        self.interrupted(self.new("shut down"), "when it stops", lambda run: close_app(self.app))

    def dies(self) -> None:
        """The same with another question that waits behind it; nobody has looked after them yet."""
        session = self.new("left alone")
        self.left_alone(session, "left-1", "Are you there?")
        waiting = {"role": "user", "id": "left-2", "content": "And now?"}
        RunService.enqueue(Start(self.me.tenant_id, session["id"], waiting), GONE, 1, 32)

    def wire(self) -> dict[str, Any]:
        """Every session of Alice's chat as it goes out."""
        with connection():
            ids = [row.id for row in CONVERSATIONS.row.select(CONVERSATIONS.row.id).where(
                CONVERSATIONS.row.dialog_id == self.chat["id"])]
        return {id: read(self.alice, {"id": id, "chat_id": self.chat["id"]}) for id in ids}


if __name__ == "__main__":
    json.dump(OldLife(sys.argv[1]).live(), sys.stdout, ensure_ascii=False)
    database.obj.close_all()
