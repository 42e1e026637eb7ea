"""`chatkeep restore` of a SQLite backup into PostgreSQL: all of it is there as it was, or nothing is and one sentence
says why."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from click.testing import CliRunner

from api.app import close_app, create_app
from api.cli import main
from conf.settings import load_settings
from db.backup_move import move
from db.database import change, connection, database, fetch, open_database
from db.document import API4_CONVERSATIONS, CONVERSATIONS
from db.migrate import migrate
from db.models import ROWS, Dialog
from db.text_index import Scope
from db.vector_index import insert_vectors, nearest, unit
from services.backup import back_up, restore
from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from tests.conftest import Person
from tests.databases import another_database, execute
from tests.db.old_database import FIXTURES
from tests.fakes import ScriptedModels
from tests.processes import ROOT, wait_until

FACTS = json.loads((FIXTURES / "0001_sqlite.json").read_text())
PAGES = ("conversation_page", "api_4_conversation_page")


def run(*arguments: str, url: str) -> tuple[int, str]:
    done = CliRunner(env={"CHATKEEP_DATABASE_URL": url}).invoke(main, [*arguments])
    assert not done.exception or isinstance(done.exception, SystemExit), done.exc_info
    database.obj.close_all()
    return done.exit_code, done.output.strip()


def ran(*arguments: str, url: str) -> str:
    code, printed = run(*arguments, url=url)
    assert code == 0, printed
    return printed


def refused(*arguments: str, url: str) -> str:
    code, printed = run(*arguments, url=url)
    assert (code, len(printed.splitlines())) == (2, 1), printed
    return printed


def edit(file: Path, *statements: str) -> None:
    """Write past everything that looks at what is written."""
    with closing(sqlite3.connect(file, isolation_level=None)) as opened:
        for statement in statements:
            assert opened.execute(statement).rowcount > 0, statement


def live_on(url: str) -> None:
    """What an old database can't have: files, places on pages, vectors, a chat with every setting of its own."""
    open_database(load_settings(database={"url": url}))
    with connection():
        [(tenant, dataset)] = fetch("SELECT tenant_id, id FROM {dataset} WHERE name = 'handbook'")
    me = Principal(tenant)
    for content in (b"\x00\xff\\x\r\n\t" * 50, "Größe \\N\\.\n".encode()):
        DocumentService.put(me, dataset, f"{len(content)}.bin", content)
    add_text(me, dataset, "deep.md", "# Tide\n\nAt low tide nobody\tmoors. C:\\new\\table \U0001f6a2")
    with connection():
        change("UPDATE {dataset_document} SET run = 'CANCEL' WHERE run = 'RUNNING'")
        change("UPDATE {dataset_chunk} SET positions = '[[1,2,3,4,5]]', page = 1, important_keywords = '[\"tide\"]'")
        ids = [id for (id,) in fetch("SELECT id FROM {dataset_chunk} ORDER BY id")]
        insert_vectors(dataset, [(id, unit(array("f", [n, 1, 0.1]))) for n, id in enumerate(ids)])
        change("UPDATE {dataset} SET dimensions = 3")
        Dialog.update(
            description="a\\b\tc\nd", icon="", llm_setting={"temperature": 0.1}, similarity_threshold=0.1 + 0.2,
            top_n=11, meta_data_filter={"method": "auto"},
        ).where(Dialog.id == FACTS["searching"]).execute()
    database.obj.close_all()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of this release, in which nothing is being answered any more."""
    folder = tmp_path_factory.mktemp("today")
    lived = f"sqlite:///{folder / 'lived.db'}"
    ran("restore", str(old_backup(folder)), url=lived)
    live_on(lived)
    ran("backup", str(folder / "b.backup"), url=lived)
    return folder / "b.backup"


def old_backup(folder: Path) -> Path:
    """One of the first release, whose server was killed while it answered."""
    with closing(sqlite3.connect(folder / "old.db")) as opened:
        opened.executescript((FIXTURES / "0001_sqlite.sql").read_text())
    ran("backup", str(folder / "old.backup"), url=f"sqlite:///{folder / 'old.db'}")
    return folder / "old.backup"


@pytest.fixture
def copy(backup: Path, tmp_path: Path) -> Path:
    """The same, to be spoilt."""
    return Path(shutil.copy(backup, tmp_path / "b.backup"))


@pytest.fixture
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with another_database("postgres", request, tmp_path) as url:
        yield url
        database.obj.close_all()


@dataclass
class Pair:
    """The URLs of the same backup restored into either engine."""

    sqlite: str
    postgres: str

    def alike(self, told: Callable[[str], Any]) -> Any:
        """What both tell."""
        before = told(self.sqlite)
        assert told(self.postgres) == before
        return before


@pytest.fixture(scope="module")
def pair(backup: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with another_database("postgres", request, folder) as url:
        both = Pair(f"sqlite:///{folder / 'there.db'}", url)
        told = both.alike(lambda url: json.loads(ran("restore", str(backup), "--json", url=url)))
        assert (told["interrupted"], told["applied"]) == (0, [])
        yield both
        database.obj.close_all()


def in_database(told: Callable[[], Any]) -> Callable[[str], Any]:
    def asked(url: str) -> Any:
        open_database(load_settings(database={"url": url}))
        with connection():
            found = told()
        database.obj.close_all()
        return found

    return asked


def in_server(told: Callable[[Any], Any]) -> Callable[[str], Any]:
    """What a server on a database tells; `told` gets the app."""
    def asked(url: str) -> Any:
        app = create_app(load_settings(database={"url": url}), models=ScriptedModels())
        try:
            return told(app)
        finally:
            close_app(app)
            database.obj.close_all()

    return asked


def rows() -> Any:
    """Every row of every table that has a model, a column's value as the models give it."""
    return {row.__name__: sorted(
        ([(name, bytes(value) if isinstance(value, memoryview) else str(value) if name.endswith("_date") else value)
          for name, value in each.__data__.items()] for each in row.select()), key=repr,
    ) for row in ROWS}


def documents() -> Any:
    """Every document as its API shows it, and its pages with their text."""
    texts = {table: [(*page, json.loads(message), json.loads(reference)) for *page, message, reference in fetch(
        "SELECT conversation_id, first_seq, last_seq, message_count, page_bytes, CAST(message AS text), "
        f"CAST(reference AS text) FROM {{{table}}} ORDER BY 1, 2")] for table in PAGES}
    return texts, [
        (row.id, document.load(row.tenant_id, row.id))
        for document in (CONVERSATIONS, API4_CONVERSATIONS)
        for row in document.row.select(document.row.id, document.row.tenant_id).order_by(document.row.id)
    ]


def test_every_row_is_there_with_every_value(pair: Pair) -> None:
    kept = pair.alike(in_database(rows))
    assert [name for name, found in kept.items() if not found] == []


def test_every_document_is_there_with_its_pages(pair: Pair) -> None:
    texts, _ = pair.alike(in_database(documents))
    assert all(texts.values())


def test_the_nearest_vectors_are_the_same(pair: Pair) -> None:
    def near() -> Any:
        [(tenant, dataset)] = fetch("SELECT tenant_id, id FROM {dataset} WHERE name = 'handbook'")
        return nearest(Scope(tenant, [dataset]), unit(array("f", [2, 1, 0])), 50)

    assert len(pair.alike(in_database(near))) > 3


def test_a_server_shows_every_session(pair: Pair) -> None:
    def shown(app: Any) -> Any:
        alice = Person(app.test_client(), FACTS["secrets"]["backend"])
        chats = alice.ok("GET", "/chats?page_size=100")["chats"]
        return chats, [
            alice.ok("GET", f"/chats/{chat['id']}/sessions?page_size=100&light={light}")
            for chat in chats for light in ("true", "false")
        ]

    chats, lists = pair.alike(in_server(shown))
    sessions = {session["id"]: session for sessions in lists[1::2] for session in sessions}
    assert len(chats) > 1 and set(FACTS["wire"]) <= set(sessions)
    for id, sent in FACTS["wire"].items():
        if sent["name"] != "left alone":  # nobody had ended its run
            assert sessions[id]["messages"] == sent["messages"] and sessions[id]["reference"] == sent["reference"]


def test_a_server_finds_and_hands_out_what_was_in_the_datasets(pair: Pair) -> None:
    def searched(app: Any) -> Any:
        alice = Person(app.test_client(), FACTS["secrets"]["backend"])
        dataset = FACTS["dataset"]
        hits = [alice.ok("POST", "/retrieval", {"dataset_ids": [dataset], "question": question})["chunks"]
                for question in ("Where does a ferry moor?", "渡船在哪里停泊", "GRÖSSE", "low tide")]
        documents = alice.ok("GET", f"/datasets/{dataset}/documents")["docs"]
        files = [alice("GET", f"/datasets/{dataset}/documents/{document['id']}").get_data() for document in documents]
        chunks = [alice.ok("GET", f"/datasets/{dataset}/documents/{document['id']}/chunks") for document in documents]
        return hits, documents, files, chunks

    hits, _, files, _ = pair.alike(in_server(searched))
    assert all(hits) and any(b"\xff" in file for file in files)


def test_every_token_opens_what_it_opened(pair: Pair) -> None:
    def opened(app: Any) -> Any:
        return {name: Person(app.test_client(), secret)("GET", "/chats").get_json()
                for name, secret in FACTS["secrets"].items()}

    told = pair.alike(in_server(opened))
    assert {name: body["code"] == 0 for name, body in told.items()} == {
        "backend": True, "stranger": True, "revoked": False, "expired": False, "embed": False}


def test_a_doctor_finds_nothing_and_the_next_backup_is_postgresqls(pair: Pair, tmp_path: Path) -> None:
    assert "0 findings" in pair.alike(lambda url: ran("doctor", url=url))


def test_a_backup_of_the_first_release_is_brought_up_to_date_and_stays_as_it_was(tmp_path: Path, empty: str) -> None:
    old = old_backup(tmp_path)
    before = old.read_bytes()
    told = json.loads(ran("restore", str(old), "--json", url=empty))
    assert (told["interrupted"], told["applied"][0]) == (2, "0002_documents")
    assert old.read_bytes() == before
    assert ran("doctor", url=empty).startswith(f"{told['sessions']} sessions examined, 0 findings")


def test_vectors_are_bytes_where_postgresql_keeps_them_so(backup: Path, pair: Pair, empty: str) -> None:
    ran("migrate", url=empty)
    execute(empty, "ALTER TABLE chatkeep.dataset_vector ALTER embedding TYPE bytea USING NULL")
    ran("restore", str(backup), url=empty)
    test_the_nearest_vectors_are_the_same(Pair(pair.sqlite, empty))


def test_a_schema_with_a_row_is_never_moved_into(backup: Path, empty: str) -> None:
    ran("migrate", url=empty)
    execute(empty, "INSERT INTO chatkeep.tenant VALUES ('t', 'theirs', 1)")
    assert "schema 'chatkeep' holds rows of 'tenant' already; restore into another database, or drop the schema" in \
        refused("restore", str(backup), url=empty)
    assert execute(empty, "SELECT count(*) FROM chatkeep.dialog") == [(0,)]


def test_a_schema_that_a_server_writes_into_is_never_moved_into(backup: Path, empty: str) -> None:
    ran("migrate", url=empty)
    with closing(psycopg2.connect(empty)) as server:
        server.cursor().execute("INSERT INTO chatkeep.tenant VALUES ('t', 'theirs', 1)")
        assert "somebody writes into schema 'chatkeep'; stop the servers" in refused("restore", str(backup), url=empty)
    ran("restore", str(backup), url=empty)


def test_somebody_elses_schema_is_never_moved_into(backup: Path, empty: str) -> None:
    execute(empty, "CREATE SCHEMA chatkeep CREATE TABLE theirs (id text)")
    assert "schema 'chatkeep' holds 'theirs' already" in refused("restore", str(backup), url=empty)


UNFIT = {
    "bytes": ("UPDATE tenant SET name = CAST(x'61ff' AS text) WHERE name = 'acme'",
              "is damaged: tenant {tenant}: name isn't UTF-8: byte 1 is 0xff"),
    "half a surrogate pair": ("UPDATE dialog SET icon = CAST(x'eda080' AS text) WHERE id = '{chat}'",
                              "is damaged: dialog {chat}: icon isn't UTF-8: byte 0 is 0xed"),
    "a part of a document": ("UPDATE conversation_page SET reference = '[{{' WHERE rowid = 1",
                             "is damaged: conversation_page {paged}: reference isn't JSON"),
    "a float": ("UPDATE dialog SET top_n = 2.5 WHERE id = '{chat}'",
                'doesn\'t fit into PostgreSQL: dialog {chat}: top_n: invalid input syntax for type bigint: "2.5"'),
    "words": ("UPDATE dialog SET top_k = 'many' WHERE id = '{chat}'",
              'dialog {chat}: top_k: invalid input syntax for type bigint: "many"'),
    "a long text": ("UPDATE dialog SET language = '" + "x" * 33 + "' WHERE id = '{chat}'",
                    "dialog {chat}: language: value too long for type character varying(32)"),
    "a date": ("UPDATE dialog SET create_date = 'some day' WHERE id = '{chat}'",
               'dialog {chat}: create_date: invalid input syntax for type timestamp: "some day"'),
    "a vector that is cut off": ("UPDATE dataset_vector SET embedding = x'000000' WHERE chunk_id = '{vector}'",
                                 "dataset_vector {vector}: bytes length not a multiple of item size"),
    "an owner that is gone": ("DELETE FROM dataset_document WHERE name = 'harbour.md'",
                              "dataset_chunk: insert or update on table \"dataset_chunk\" violates foreign key"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_postgresql_cannot_hold_is_named_and_nothing_is_moved(copy: Path, empty: str, kind: str) -> None:
    with closing(sqlite3.connect(copy)) as opened:
        [(tenant, paged, vector)] = opened.execute(
            "SELECT (SELECT id FROM tenant WHERE name = 'acme'), (SELECT conversation_id FROM conversation_page "
            "WHERE rowid = 1), (SELECT max(chunk_id) FROM dataset_vector)")
    names = {"tenant": tenant, "paged": paged, "vector": vector, "chat": FACTS["chat"]}
    statement, said = UNFIT[kind]
    edit(copy, statement.format(**names))
    assert said.format(**names) in refused("restore", str(copy), url=empty)
    there = execute(empty, "SELECT relname FROM pg_class WHERE relname = 'tenant'")
    assert not there or execute(empty, "SELECT count(*) FROM chatkeep.tenant") == [(0,)]


def test_what_never_comes_in_is_cleaned_as_it_would_be(copy: Path, empty: str) -> None:
    chat = FACTS["chat"]
    [session] = [id for id, sent in FACTS["wire"].items() if sent["name"] == "opened only"]
    edit(copy, f"UPDATE dialog SET description = 'a' || char(0) || 'b' WHERE id = '{chat}'",
         "UPDATE conversation SET message = replace(message, 'Willkommen!', 'a\\u0000b \\ud800 c') "
         f"WHERE id = '{session}'",
         """UPDATE conversation_page SET reference = replace(reference, '"chunks"', '"x\\u0000\\udc00":1,"chunks"')
            WHERE rowid = 1""")
    ran("restore", str(copy), url=empty)
    description = f"SELECT description FROM chatkeep.dialog WHERE id = '{chat}'"
    assert execute(empty, description) == [("ab",)]
    assert execute(empty, f"SELECT message->0->>'content' FROM chatkeep.conversation WHERE id = '{session}'") == [
        ("ab \ufffd c 你好. \U0001f600",)]
    pages = "SELECT count(*) FROM chatkeep.conversation_page WHERE reference::text LIKE '%%%s%%'"
    assert execute(empty, pages % '"x\ufffd":1') == [(1,)]
    assert execute(empty, pages % "u0000") == [(0,)]
    assert "0 findings" in ran("doctor", "--fix", url=empty)  # its counters were of other texts


class Stopped(BaseException):
    """As Ctrl-C would be."""


def test_a_move_that_is_stopped_leaves_nothing_and_may_be_done_again(backup: Path, empty: str) -> None:
    heard: list[tuple[int, int | None]] = []

    def stop(done: int, total: int | None) -> None:
        heard.append((done, total))
        if len(heard) == 5:
            raise Stopped

    settings = load_settings(database={"url": empty})
    with pytest.raises(Stopped):
        restore(settings, backup, stop)
    assert execute(empty, "SELECT count(*) FROM chatkeep.tenant") == [(0,)]
    heard.clear()
    restore(settings, backup, lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard) and heard[-1][0] == heard[-1][1]


GATE = """CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
    CREATE TRIGGER gate BEFORE INSERT ON chatkeep.dataset_chunk FOR EACH ROW EXECUTE FUNCTION public.gate()"""
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE 'COPY%'"


def test_a_move_that_is_killed_leaves_nothing_and_may_be_done_again(backup: Path, empty: str) -> None:
    ran("migrate", url=empty)
    execute(empty, GATE)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CHATKEEP_DATABASE_URL": empty}
    with closing(psycopg2.connect(empty)) as gate:
        gate.cursor().execute("SELECT pg_advisory_lock(7)")
        with subprocess.Popen([sys.executable, "-m", "api.cli", "restore", str(backup)], env=environment) as process:
            wait_until(lambda: execute(empty, WAITING), 30)
            assert execute(empty, "SELECT pg_try_advisory_lock(1667785076)") == [(False,)], "a server would migrate now"
            process.kill()
    wait_until(lambda: not execute(empty, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%'"))
    assert execute(empty, "SELECT count(*) FROM chatkeep.tenant") == [(0,)]
    execute(empty, "DROP TRIGGER gate ON chatkeep.dataset_chunk")
    ran("restore", str(backup), url=empty)
    assert "0 findings" in ran("doctor", url=empty)


def test_a_move_takes_memory_for_the_largest_row_and_not_for_all(tmp_path: Path, empty: str) -> None:
    settings = load_settings(database={"url": f"sqlite:///{tmp_path / 'big.db'}"})
    open_database(settings)
    migrate(settings)
    with connection():
        change("PRAGMA foreign_keys = 0")
        change("""WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 40000)
            INSERT INTO message_index (conversation_id, seq, uid, role) SELECT 'c', n, 'u' || n, 'user' FROM n""")
        change("INSERT INTO dataset VALUES ('s', 't', 'n', NULL, 0, 0, 1, '2026-01-01', 1, '2026-01-01', NULL, '', 0)")
        for number in range(25):
            change("""INSERT INTO dataset_document (id, tenant_id, dataset_id, name, size, digest, run, progress,
                progress_msg, create_time, create_date, update_time, update_date)
                VALUES (%s, 't', 's', 'n', 1, '', 'DONE', 1, '', 1, '2026-01-01', 1, '2026-01-01')""", [number])
            change("INSERT INTO dataset_file VALUES (%s, zeroblob(2000000))", [number])
    back_up(settings, tmp_path / "b.backup", lambda done, total: None)
    database.obj.close_all()
    migrate(load_settings(database={"url": empty}))
    tracemalloc.start()
    try:
        move(tmp_path / "b.backup", lambda done, total: None)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert execute(empty, "SELECT count(*), min(length(content)) FROM chatkeep.dataset_file") == [(25, 2_000_000)]
    assert execute(empty, "SELECT count(*) FROM chatkeep.message_index") == [(40_000,)]
    assert most < 20_000_000, f"{most / 1e6:.0f} MB at once for files of 2 MB"
