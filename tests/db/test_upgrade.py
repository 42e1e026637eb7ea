"""A database of the first migration becomes one of today, and nothing in it is lost. tests/db/old_life.py filled it."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from api.app import close_app, create_app
from conf.settings import Settings
from db.database import connection, database, open_database
from db.document import API4_CONVERSATIONS, CONVERSATIONS
from db.ids import channel_session_id, legacy_channel_session_id
from db.migrate import migrate, pending
from services.conversation_service import ConversationService
from services.doctor import Doctor
from tests.conftest import Person
from tests.contracts.wire import ask, read, runs, spoken, until
from tests.db.conftest import empty_database
from tests.db.old_database import FIXTURES, Rows, contents, files_of, old_tables, restore
from tests.db.old_life import ODD, TEXTS
from tests.db.test_legacy import SHAPES, chunks_of
from tests.db.test_migrate import EVERY
from tests.fakes import ScriptedModels
from tests.invariants import assert_sound, counters


@dataclass
class Upgraded:
    """What was in the old tables before and after, by the old tables' own columns, and which files they are in."""

    settings: Settings
    facts: dict[str, Any]
    before: Rows
    after: Rows
    moved: set[str]


@pytest.fixture(scope="module")
def upgraded(engine, request, tmp_path_factory):
    with empty_database(engine, request, tmp_path_factory.mktemp("upgrade")) as settings:
        restore(settings, engine)
        open_database(settings)
        with connection():
            columns = old_tables()
            before, files = contents(columns), files_of(columns)
            assert pending(settings) == EVERY[1:], "the fixture is a database of the first migration alone"
        assert migrate(settings) == EVERY[1:]
        with connection():
            moved = {name for name, file in files_of(columns).items() if files[name] != file}
            after = contents(columns)
        facts = json.loads((FIXTURES / f"0001_{engine}.json").read_text())
        yield Upgraded(settings, facts, before, after, moved)


@pytest.fixture(scope="module")
def models():
    return ScriptedModels()


@pytest.fixture(scope="module")
def app(upgraded, models):
    app = create_app(upgraded.settings, models=models)
    yield app
    close_app(app)
    database.obj.close_all()


@pytest.fixture
def alice(app, upgraded):
    """The old database's owner, with the token that she has had since then."""
    return Person(app.test_client(), upgraded.facts["secrets"]["backend"])


@pytest.fixture
def chat(upgraded):
    return {"id": upgraded.facts["chat"]}


def session(alice: Person, chat: Any, name: str) -> Any:
    [found] = alice.ok("GET", f"/chats/{chat['id']}/sessions", query_string={"name": name, "light": "true"})
    return found


def prompt_after(models: ScriptedModels, alice: Person, chat: Any, found: Any, question: str = "And then?") -> str:
    """What the model reads when the next question is asked."""
    answer = ask(alice, chat, question, found)
    assert answer["answer"] == f"You said: {question}"
    return json.dumps(models.default.requests[-1].messages, ensure_ascii=False)


class TestNothingChanged:
    def test_every_row_is_as_it_was(self, upgraded) -> None:
        assert {table for table, rows in upgraded.before.items() if rows} >= {
            "dialog", "conversation", "conversation_page", "api_4_conversation", "api_4_conversation_page", "run",
            "run_event", "message_index", "api_token", "chat_channel", "dataset", "dataset_document", "dataset_chunk",
        }
        for table, rows in upgraded.before.items():
            assert upgraded.after[table] == rows, table

    def test_no_table_was_written_anew(self, upgraded) -> None:
        assert not upgraded.moved

    def test_every_session_goes_out_as_the_old_server_sent_it(self, alice, upgraded, chat) -> None:
        for id, sent in upgraded.facts["wire"].items():
            if sent["name"] != "left alone":  # nobody had ended its run
                assert read(alice, {"id": id, "chat_id": chat["id"]}) == sent, sent["name"]

    def test_a_doctor_finds_nothing(self, app) -> None:
        def finding() -> Any:
            return [*Doctor(30).examine()]

        until(lambda: not finding())  # a lost run is ended by the server that started just now
        assert finding() == []


class TestTheOldHistory:
    @pytest.mark.parametrize(("name", "remembered"), [
        ("long", ["Question 0: wie groß? \u2028", "Antwort 11 \U0001f6a2", "Question 11"]),
        ("tools", ["Look it up.", "It is 42.", "call-1"]),
        ("edited", ["Edit 0", "answer 2", "Edit 4", "After the rewind"]),
        ("endings", ["to the end", "cut off", "to be cancelled", "Half of it"]),
        ("shut down", ["when it stops", "Half of it"]),
        ("lost", ["Where are you?", "I am still"]),
        ("left alone", ["Are you there?", "I am still"]),
    ])
    def test_reaches_the_model(self, alice, chat, models, name: str, remembered: list[str]) -> None:
        found = session(alice, chat, name)
        until(lambda: not runs(alice, found, "active"))
        prompt = prompt_after(models, alice, chat, found)
        assert [text for text in remembered if json.dumps(text, ensure_ascii=False)[1:-1] not in prompt] == []
        assert "Edit 1" not in prompt and "Edit 5" not in prompt, "deleted, and rewound"

    @pytest.mark.parametrize("name", SHAPES)
    def test_of_another_system_does_so_too_and_is_mended(self, alice, chat, models, name: str) -> None:
        message, _, chunks = SHAPES[name]
        found = session(alice, chat, name)
        prompt = prompt_after(models, alice, chat, found)
        answered = [entry["content"] for entry in message if entry and str(entry.get("content")).startswith("answer ")]
        assert [text for text in answered if f'"{text}"' not in prompt] == []
        with connection():
            whole = CONVERSATIONS.load(found["user_id"], found["id"])
            assert chunks_of(whole.slots) == [*chunks, []]
            assert_sound(found["id"], imported=True)

    @pytest.mark.parametrize("name", ODD)
    def test_of_an_odd_import_can_be_gone_on_with(self, alice, chat, models, name: str) -> None:
        found = session(alice, chat, f"odd: {name}")
        prompt_after(models, alice, chat, found)
        with connection():
            assert_sound(found["id"], imported=True)

    def test_of_a_channel_is_found_under_both_of_its_ids(self, app, alice, chat, models) -> None:
        for name, id_of in (("old", legacy_channel_session_id), ("new", channel_session_id)):
            found = ConversationService.get_or_create_for_channel(chat["id"], "telegram", name)
            assert found.id == channel_session_id(chat["id"], "telegram", name)
            asked = f"From the platform to {id_of(chat['id'], 'telegram', name)[:4]}"
            assert asked in prompt_after(models, alice, chat, {"id": found.id})
            assert len(runs(alice, {"id": found.id, "chat_id": chat["id"]})) == 2

    def test_of_agents_is_there_and_goes_on(self, app) -> None:
        with connection():
            rows = {row.name: row for row in API4_CONVERSATIONS.row.select(*API4_CONVERSATIONS.row.light())}
            agent, imported = rows["agent"], rows["agent of another system"]
            assert (agent.round, agent.tokens, agent.duration) == (5, 35, 2.5)
            assert agent.page_count > 1
            for row, chunks in ((agent, [[f"a{n}"] for n in range(5)]), (imported, [["c1", "c2"]])):
                question = {"role": "user", "content": "more?", "id": "more"}
                API4_CONVERSATIONS.append(row.tenant_id, row.id, [question])
                assert chunks_of(API4_CONVERSATIONS.load(row.tenant_id, row.id).slots) == chunks
                assert counters(row.id, API4_CONVERSATIONS)["format"] == 1


class TestRunsAndTokens:
    def test_every_ending_is_told(self, alice, chat) -> None:
        told = [(run["status"], run["outcome"]) for run in runs(alice, session(alice, chat, "endings"))]
        assert told[-4:] == [("interrupted", "cancelled"), ("errored", "error"), ("complete", "length"),
                             ("complete", "success")]
        assert runs(alice, session(alice, chat, "shut down"))[-1]["outcome"] == "shutdown"
        assert runs(alice, session(alice, chat, "lost"))[-1]["outcome"] == "lost"

    def test_what_a_dead_server_left_is_ended_with_what_its_readers_saw(self, alice, chat) -> None:
        found = session(alice, chat, "left alone")
        until(lambda: not runs(alice, found, "active"))
        assert spoken(alice, found)[1:3] == [("user", "Are you there?"), ("assistant", "I am still ")]
        assert read(alice, found)["messages"][2]["finish_reason"] == "interrupted"
        assert "And now?" not in str(spoken(alice, found)), "it waited, and nobody had been told anything"

    @pytest.mark.parametrize("name", ["revoked", "expired", "embed"])
    def test_a_token_that_opened_nothing_opens_nothing(self, app, upgraded, name: str) -> None:
        secret = upgraded.facts["secrets"][name]
        assert Person(app.test_client(), secret)("GET", "/chats").status_code == 401

    def test_a_stranger_sees_nothing(self, app, upgraded, chat) -> None:
        stranger = Person(app.test_client(), upgraded.facts["secrets"]["stranger"])
        assert stranger.ok("GET", "/chats")["chats"] == []
        assert stranger.refused("GET", f"/chats/{chat['id']}/sessions")[0] != 0


class TestDatasets:
    @pytest.mark.parametrize(("question", "name"), [
        ("Where does a ferry moor?", "harbour.md"), ("horn sounds ninety seconds", "harbour.md"),
        ("渡船在哪里停泊", "港口.md"), ("GRÖSSE", "harbour.md"),
    ])
    def test_old_passages_are_found(self, alice, upgraded, question: str, name: str) -> None:
        found = alice.ok("POST", "/retrieval", {"dataset_ids": [upgraded.facts["dataset"]], "question": question})
        assert found["chunks"][0]["document_name"] == name

    def test_a_question_is_answered_from_them(self, alice, upgraded, models) -> None:
        answer = ask(alice, {"id": upgraded.facts["searching"]}, "Where does a ferry moor?")
        assert answer["reference"]["chunks"][0]["document_name"] == "harbour.md"
        assert "pier seven" in str(models.default.requests[-1].messages)

    def test_a_document_without_a_file_is_listed_and_says_so_when_it_is_parsed(self, alice, upgraded) -> None:
        at = f"/datasets/{upgraded.facts['dataset']}"
        listed = {doc["name"]: doc for doc in alice.ok("GET", f"{at}/documents")["docs"]}
        assert {name: (doc["run"], doc["meta_fields"]) for name, doc in listed.items()} == dict.fromkeys(
            TEXTS, ("DONE", {}))
        harbour = listed["harbour.md"]
        _, sentence = alice.refused("GET", f"{at}/documents/{harbour['id']}")
        alice.ok("POST", f"{at}/chunks", {"document_ids": [harbour["id"]]})
        [after] = until(lambda: alice.ok("GET", f"{at}/documents", query_string={"run": "FAIL"})["docs"])
        assert after["progress_msg"] == sentence and "upload" in sentence
        assert after["chunk_count"] == harbour["chunk_count"]
        self.test_old_passages_are_found(alice, upgraded, "Where does a ferry moor?", "harbour.md")

    def test_an_old_passage_is_as_old_as_its_document(self, alice, upgraded) -> None:
        at = f"/datasets/{upgraded.facts['dataset']}/documents"
        for doc in alice.ok("GET", at)["docs"]:
            for chunk in alice.ok("GET", f"{at}/{doc['id']}/chunks")["chunks"]:
                assert chunk["create_timestamp"] == doc["create_time"] / 1000
