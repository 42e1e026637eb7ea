"""Doctor finds each thing that is broken on purpose, mends what is safe to mend, and touches nothing else."""

import json
import threading
from array import array
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli import main
from conf.settings import Settings
from db.database import change, connection, database, dialect, fetch
from db.document import API4_CONVERSATIONS, CONVERSATIONS, PagedDocument
from db.models import now_ms
from db.sqlite import SQLITE
from db.vector_index import insert_vectors, unit
from services.api4_conversation_service import API4ConversationService
from services.conversation_service import ConversationService
from services.doctor import Doctor
from services.events import TextDelta
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.runs import journal
from services.runs.rows import RunService
from services.runs.values import Start
from tests.factories import DialogFactory
from tests.invariants import assert_sound

ALICE = Principal("acme")
TURNS = 12
DOCUMENTS = {"conversation": CONVERSATIONS, "api_4_conversation": API4_CONVERSATIONS}
pytestmark = pytest.mark.settings(document={"page_bytes": 1_000})


@pytest.fixture
def ids(store: Settings) -> dict[str, str]:
    """A sound session of each kind with sealed pages, and a dataset of one document, by their tables' names."""
    with connection():
        dialog = DialogFactory(tenant_id=ALICE.tenant_id)
    made = {
        "conversation": ConversationService.create(ALICE, dialog).id,
        "api_4_conversation": API4ConversationService.create(ALICE, dialog).id,
    }
    for number in range(TURNS):
        for table, document in DOCUMENTS.items():
            append(document, made[table], f"t{number}")
    dataset = DatasetService.create(ALICE, "docs")
    add_text(ALICE, dataset.id, "a.md", "# Pumps\n\nA pump moves water.\n\n# Valves\n\nA valve stops it.")
    with connection():
        chunks = fetch("SELECT id FROM {dataset_chunk}")
        insert_vectors(dataset.id, [(id, unit(array("f", [3, 4]))) for (id,) in chunks])
        change("UPDATE {dataset} SET dimensions = 2")
        assert fetch("SELECT count(*) FROM {conversation_page}") >= [(2,)]
    assert found() == []
    return made | {"dataset": dataset.id}


def append(document: PagedDocument, id: str, turn_id: str) -> None:
    entries = [{"role": role, "content": "Words. " * 20, "id": turn_id} for role in ("user", "assistant")]
    with connection():
        document.append(ALICE.tenant_id, id, entries, [{"message_id": turn_id, "chunks": [], "doc_aggs": []}])


def found() -> list[tuple[str, str]]:
    return sorted((finding.check, finding.id) for finding in Doctor(30).examine())


def mended() -> tuple[list[str], list[str]]:
    """The checks whose findings `mend` mended, and those that it left."""
    doctor = Doctor(30)
    done, left = doctor.mend(list(doctor.examine()))
    assert left == list(Doctor(30).examine())
    return sorted(finding.check for finding in done), sorted(finding.check for finding in left)


def documents(ids: dict[str, str]) -> Any:
    with connection():
        return [
            (loaded.entries, loaded.slots, fetch(f"SELECT update_time FROM {{{table}}}"))
            for table, document in DOCUMENTS.items()
            for loaded in [document.load(ALICE.tenant_id, ids[table])]
        ]


def run(*statements: str) -> None:
    with connection():
        for statement in statements:
            change(statement)


@contextmanager
def without_keys() -> Any:
    """A connection on which the engine doesn't look after foreign keys, as another program's may be."""
    off, on = ("PRAGMA foreign_keys = 0", "PRAGMA foreign_keys = 1") if dialect() is SQLITE else (
        "SET session_replication_role = replica", "SET session_replication_role = DEFAULT")
    with connection():
        database.execute_sql(off)
        try:
            yield
        finally:
            database.execute_sql(on)


COUNTERS = {
    "message_count": (["message_count"], "UPDATE {table} SET message_count = message_count + 1"),
    "page_count": (["page_count"], "UPDATE {table} SET page_count = 0"),
    "document_bytes": (["document_bytes", "pages"], "UPDATE {table} SET document_bytes = document_bytes + 500"),
    "open_bytes": (["pages"], "UPDATE {table} SET open_bytes = open_bytes + 7"),
    "page_bytes": (["pages"], "UPDATE {table_page} SET page_bytes = page_bytes + 7 WHERE first_seq > 9"),
    "next_seq": (["next_seq"], "UPDATE {table} SET next_seq = next_seq - 1"),
    "next_seq, so that pages are read in a wrong order": (
        ["message_index", "next_seq", "seq"], "UPDATE {table} SET next_seq = 5"),
    "all of them": (
        ["document_bytes", "message_count", "next_seq", "page_count", "pages"],
        "UPDATE {table} SET message_count = 0, page_count = 0, document_bytes = 0, next_seq = next_seq - 2"),
    "an index row is missing": (["message_index"], "DELETE FROM {message_index} WHERE seq = 4"),
    "the whole index": (["message_index"], "DELETE FROM {message_index}"),
    "an index row leads astray": (["message_index"], "UPDATE {message_index} SET message_id = 'x' WHERE seq = 4"),
}


@pytest.mark.parametrize("table", DOCUMENTS)
@pytest.mark.parametrize("broken", COUNTERS)
def test_what_is_derived_is_made_anew_from_the_document(ids: dict[str, str], broken: str, table: str) -> None:
    checks, statement = COUNTERS[broken]
    before = documents(ids)
    of_this = f" {'AND' if 'WHERE' in statement else 'WHERE'} conversation_id = '{ids[table]}'"
    run(statement.replace("{table", f"{{{table}") + (of_this if "message_index" in statement else ""))
    assert found() == [(check, ids[table]) for check in checks]
    assert mended() == (checks, [])
    assert documents(ids) == before, "neither what was said nor the order of lists changes"
    with connection():
        for name, document in DOCUMENTS.items():
            assert_sound(ids[name], document)
    append(DOCUMENTS[table], ids[table], "next")
    assert found() == []


LEFT: dict[str, tuple[list[str], Callable[[dict[str, str]], str]]] = {
    "an index row without an entry": (["message_index"], lambda ids: (
        "INSERT INTO {message_index} (conversation_id, seq, uid, message_id, role) "
        f"VALUES ('{ids['conversation']}', 99, 'u', 't', 'user')")),
    "a slot is missing": (["slots"], lambda ids: "UPDATE {conversation} SET reference = '[]'"),
    "pages overlap": (["pages"], lambda ids: "UPDATE {conversation_page} SET last_seq = 90 WHERE first_seq = 1"),
    "a run contradicts itself": (["runs"], lambda ids: (
        "INSERT INTO {run} (id, tenant_id, conversation_id, kind, status, cancel_requested) "
        f"VALUES ('r', 'acme', '{ids['conversation']}', 'chat', 'complete', {{false}})")),
    "documents wait": (["parsing"], lambda ids: (
        f"UPDATE {{dataset_document}} SET run = 'RUNNING', update_time = {now_ms() - 700_000}, began_at = NULL")),
    "vectors of another dimension": (["dimensions"], lambda ids: "UPDATE {dataset} SET dimensions = 3"),
}


@pytest.mark.parametrize("broken", LEFT)
def test_what_might_lose_something_is_left_as_it_is(ids: dict[str, str], broken: str) -> None:
    checks, statement = LEFT[broken]
    false = "0" if dialect() is SQLITE else "FALSE"
    run(statement(ids).replace("{false}", false))
    before = documents(ids)
    _, left = mended()
    assert left == checks
    assert documents(ids) == before


@pytest.mark.parametrize(("old", "new", "check"), [
    ('"seq":%d', '"seq":1', "seq"), ('"uid":"%s"', '"uid":""', "uid"), ('"uid":"%s"', '"uid":"%s"', "uid"),
])
def test_entries_that_cannot_be_told_apart_are_left_as_they_are(
    ids: dict[str, str], old: str, new: str, check: str
) -> None:
    with connection():
        entries = CONVERSATIONS.load(ALICE.tenant_id, ids["conversation"]).entries
        first, last = entries[0][check], entries[-1][check]
        [(text,)] = fetch("SELECT CAST(message AS text) FROM {conversation}")
        wrong = new % first if "%" in new else new
        text = text.replace('": ', '":').replace(old % last, wrong)
        change("UPDATE {conversation} SET message = %s", [text])
    before = documents(ids)
    assert check in mended()[1]
    assert documents(ids) == before


def test_rows_that_nothing_leads_to_are_erased(ids: dict[str, str]) -> None:
    false = "0" if dialect() is SQLITE else "FALSE"
    run("INSERT INTO {run} (id, tenant_id, conversation_id, kind, status, outcome, cancel_requested) "
        f"VALUES ('r', 'acme', 'gone', 'chat', 'complete', 'success', {false})",
        "INSERT INTO {run_event} (run_id, n, payload) VALUES ('r', 1, '[]'), ('no-run', 1, '[]')",
        "INSERT INTO {message_index} (conversation_id, seq, uid, role) VALUES ('gone-too', 1, 'u', 'user')")
    before = documents(ids)
    assert mended() == (["orphans"] * 3, [])
    with connection():
        assert fetch("SELECT (SELECT count(*) FROM {run}) + (SELECT count(*) FROM {run_event})") == [(0,)]
        assert fetch("SELECT count(*) FROM {message_index}") == [(4 * TURNS + 2,)]
    assert documents(ids) == before


def test_a_run_that_its_owner_lost_ends_with_what_was_said(ids: dict[str, str]) -> None:
    start = Start(ALICE.tenant_id, ids["conversation"], {"role": "user", "content": "Why?", "id": "lost"})
    RunService.begin(start, "elsewhere:1:1", 3600)
    with connection():
        journal.write("elsewhere:1:1", [(start.id, 1, journal.encode([TextDelta("Because")]))])
    assert found() == [], "its owner may live"
    run("UPDATE {run} SET lease_until = lease_until - 3700")
    assert found() == [("runs", start.id)]
    assert mended() == (["runs"], [])
    *_, answer = ConversationService.text(ALICE, ids["conversation"]).parsed().entries
    assert (answer["id"], answer["content"], answer["finish_reason"]) == ("lost", "Because", "interrupted")


@pytest.mark.parametrize(("checks", "statement"), [
    (["document_count"], "UPDATE {dataset} SET document_count = 7"),
    (["chunk_count"], "UPDATE {dataset} SET chunk_count = 0"),
    (["chunk_count"], "UPDATE {dataset_document} SET chunk_count = 1"),
    (["chunk_count", "chunk_count", "document_count"], "UPDATE {dataset} SET document_count = 0, chunk_count = 0"),
])
def test_a_datasets_counters_are_counted_anew(ids: dict[str, str], checks: list[str], statement: str) -> None:
    run(statement, *(["UPDATE {dataset_document} SET chunk_count = 9"] if len(checks) == 3 else []))
    assert found() == [(check, ids["dataset"]) for check in checks]
    assert mended() == (checks, [])
    with connection():
        assert fetch("SELECT document_count, chunk_count FROM {dataset}") == [(1, 2)]
        assert fetch("SELECT chunk_count FROM {dataset_document}") == [(2,)]


@pytest.mark.parametrize(("owner", "left"), [
    ("dataset", ["dataset_document"]), ("dataset_document", ["dataset_chunk", "dataset_file"]),
    ("dataset_chunk", ["dataset_vector"]),
])
def test_a_datasets_rows_that_belong_to_nothing_are_erased(
    ids: dict[str, str], owner: str, left: list[str]
) -> None:
    with without_keys():
        change(f"DELETE FROM {{{owner}}}")
    problems = [finding.problem for finding in Doctor(30).examine() if finding.check == "orphans"]
    assert sorted({problem.split()[0] for problem in problems}) == left
    assert mended()[1] == []
    with connection():
        for table in left:
            assert fetch(f"SELECT count(*) FROM {{{table}}}") == [(0,)]


@pytest.mark.parametrize("column", ["lease_until = {now} + 5", "began_at = {now} - 5"])
def test_documents_may_wait_for_long_while_somebody_parses_others(ids: dict[str, str], column: str) -> None:
    add_text(ALICE, ids["dataset"], "b.md", "# Seals\n\nA gasket seals.")
    run(f"UPDATE {{dataset_document}} SET run = 'RUNNING', update_time = {now_ms() - 700_000}, began_at = NULL",
        f"UPDATE {{dataset_document}} SET {column} WHERE name = 'b.md'")
    assert found() == []


def test_a_seq_that_was_used_is_not_given_again(ids: dict[str, str]) -> None:
    id = ids["conversation"]
    with connection():
        [(next_seq,)] = fetch("SELECT next_seq FROM {conversation}")
    ConversationService.delete_turn(ALICE, id, f"t{TURNS - 1}")
    run("UPDATE {conversation} SET message_count = 0")
    assert mended() == (["message_count"], [])
    with connection():
        assert fetch("SELECT next_seq FROM {conversation}") == [(next_seq,)]


def test_mending_under_load_loses_nothing(ids: dict[str, str]) -> None:
    id, turns = ids["conversation"], 40

    def work(number: int) -> None:
        for turn in range(turns):
            append(CONVERSATIONS, id, f"{number}-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with connection():
            CONVERSATIONS.recount(ALICE.tenant_id, id)
            CONVERSATIONS.reindex(ALICE.tenant_id, id)
    with connection():
        assert_sound(id)
        assert len(CONVERSATIONS.load(ALICE.tenant_id, id).entries) == 1 + 2 * (TURNS + 3 * turns)


@pytest.mark.parametrize(("statements", "arguments", "exit_code", "counts"), [
    ([], [], 0, (0, 0)), ([], ["--fix"], 0, (0, 0)),
    (["UPDATE {conversation} SET message_count = 0"], [], 1, (0, 1)),
    (["UPDATE {conversation} SET message_count = 0"], ["--fix"], 0, (1, 0)),
    (["UPDATE {conversation} SET message_count = 0", "UPDATE {dataset} SET dimensions = 3"], ["--fix"], 1, (1, 1)),
])
def test_the_command_says_what_it_mended_and_what_it_left(
    ids: dict[str, str], store: Settings, statements: list[str], arguments: list[str], exit_code: int,
    counts: tuple[int, int],
) -> None:
    run(*statements)
    invoke = CliRunner(env={"CHATKEEP_DATABASE_URL": store.database.url}).invoke
    told = invoke(main, ["doctor", "--json"])
    if "--fix" in arguments:
        told = invoke(main, ["doctor", "--json", *arguments])
    assert told.exit_code == exit_code, told.output
    found = json.loads(told.stdout)
    assert (len(found["mended"]), len(found["findings"]), found["examined"]) == (*counts, 2)
    assert invoke(main, ["doctor"]).exit_code == (1 if counts[1] else 0)


@pytest.fixture
def on_sqlite(ids: dict[str, str]) -> None:
    if dialect() is not SQLITE:
        pytest.skip("PostgreSQL keeps no text that can't be read")


UNREADABLE = {
    "a page": ("{ids[conversation]}", "conversation_page: message isn't UTF-8: byte 9 is 0xff",
               "UPDATE conversation_page SET message = CAST(substr(CAST(message AS blob), 1, 9) || x'ff' AS text) "
               "WHERE first_seq = 1"),
    "an open page": ("{ids[api_4_conversation]}", "api_4_conversation: message isn't UTF-8: byte 2 is 0xc3",
                     "UPDATE api_4_conversation SET message = CAST('[\"' || x'c3' || '\"]' AS text)"),
    "a half of a document": ("{ids[conversation]}", "conversation_page: reference isn't JSON",
                             "UPDATE conversation_page SET reference = '[{{' WHERE first_seq = 1 "
                             "AND conversation_id = '{ids[conversation]}'"),
    "a session's name": ("{ids[conversation]}", "conversation: name isn't UTF-8: byte 0 is 0xff",
                         "UPDATE conversation SET name = CAST(x'ff' AS text)"),
    "the index": ("{ids[conversation]}", "message_index: message_id isn't UTF-8: byte 0 is 0xff",
                  "UPDATE message_index SET message_id = CAST(x'ff' AS text) "
                  "WHERE seq = 4 AND conversation_id = '{ids[conversation]}'"),
    "a session's id": ("\ufffd", "conversation: id isn't UTF-8: byte 0 is 0xff",
                       "UPDATE conversation SET id = CAST(x'ff' AS text)"),
    "a dataset's name": ("{ids[dataset]}", "dataset: name isn't UTF-8: byte 0 is 0xff",
                         "UPDATE dataset SET name = CAST(x'ff' AS text)"),
}

@pytest.mark.usefixtures("on_sqlite")
@pytest.mark.parametrize("broken", UNREADABLE)
def test_a_row_that_cannot_be_read_is_told_once_and_the_others_are_examined(
    ids: dict[str, str], store: Settings, broken: str
) -> None:
    id, problem, statement = UNREADABLE[broken]
    with without_keys():
        assert database.execute_sql(statement.format(ids=ids)).rowcount == 1
        change("UPDATE dataset SET chunk_count = 9")
    told = CliRunner(env={"CHATKEEP_DATABASE_URL": store.database.url}).invoke(main, ["doctor", "--json"])
    assert told.exit_code == 1, told.output
    findings, examined = (json.loads(told.stdout)[key] for key in ("findings", "examined"))
    assert examined == 2 or broken == "a session's id"
    first, *others = [finding for finding in findings if finding["check"] == "unreadable"]
    assert others == [] and first["id"] == id.format(ids=ids) and first["problem"].startswith(problem)
    assert "chunk_count" in [finding["check"] for finding in findings]
