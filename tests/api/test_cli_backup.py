"""`chatkeep backup` and `restore`: what comes back is what was there, and nothing that is there is lost to them."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from playhouse.migrations import Runner

from api.cli import main
from conf.settings import Settings, load_settings
from db.database import change, connection, database, fetch, open_database
from db.document import CONVERSATIONS
from db.migrate import exclusive
from db.models import Conversation
from db.vector_index import insert_vectors, unit
from services.backup import back_up, restore
from services.conversation_service import ConversationService
from services.events import TextDelta
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.runs import journal
from services.runs.rows import RunService
from services.runs.values import Start, this_process
from tests.databases import OLDER_PROGRAMS, PROGRAMS, another_database, execute
from tests.factories import DialogFactory
from tests.processes import ROOT, wait_until

ALICE = Principal("acme")
SECRET = "hunter2-very-secret"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to work in, and PostgreSQL's programs on the PATH."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "work"


@pytest.fixture
def other(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of the same engine."""
    with another_database(engine, request, tmp_path) as url:
        yield url
        database.obj.close_all()


@pytest.fixture
def filled(store: Settings) -> Settings:
    """The first database, with two sessions of a chat, one long enough for pages, and a dataset with a vector."""
    with connection():
        dialog = DialogFactory(tenant_id=ALICE.tenant_id)
    for turns in (1, 40):
        session = ConversationService.create(ALICE, dialog)
        for number in range(turns):
            add_turn(session.id, f"{turns}-{number}")
    dataset = DatasetService.create(ALICE, "docs")
    add_text(ALICE, dataset.id, "a.md", "# Pumps\n\nA pump moves water.")
    with connection():
        [(chunk_id,)] = fetch("SELECT id FROM {dataset_chunk}")
        insert_vectors(dataset.id, [(chunk_id, unit(array("f", [3, 4])))])
        change("UPDATE {dataset} SET dimensions = 2")
    return store


def add_turn(session_id: str, turn_id: str) -> None:
    entries = [{"role": "user", "content": "Why? " * 50, "id": turn_id},
               {"role": "assistant", "content": "Because. " * 50, "id": turn_id}]
    with connection():
        CONVERSATIONS.append(ALICE.tenant_id, session_id, entries,
                             [{"message_id": turn_id, "chunks": [], "doc_aggs": []}])


def run(*arguments: str, url: str, **environment: str) -> Result:
    done = CliRunner(env={"CHATKEEP_DATABASE_URL": url} | environment).invoke(main, [*arguments])
    assert "Traceback" not in done.output and SECRET not in done.output, done.output
    assert done.exit_code in (0, 1, 2) and not (done.exception and not isinstance(done.exception, SystemExit)), done
    return done


def refused(*arguments: str, url: str, **environment: str) -> str:
    """The one sentence of a refusal."""
    done = run(*arguments, url=url, **environment)
    assert done.exit_code == 2, done.output
    assert len(done.output.strip().splitlines()) == 1, done.output
    return done.output.strip()


def everything(url: str) -> Any:
    """What chats, sessions and datasets hold in this database."""
    open_database(load_settings(database={"url": url}))
    with connection():
        ids = sorted(row.id for row in Conversation.select(Conversation.id))
        told = [CONVERSATIONS.load(ALICE.tenant_id, id) for id in ids], *(
            sorted(map(str, fetch(f"SELECT {columns} FROM {table}"))) for table, columns in (
                ("{dialog}", "id, name, update_date"), ("{message_index}", "conversation_id, seq, uid, message_id"),
                ("{dataset_chunk}", "id, content"), ("{dataset_file}", "document_id, content IS NOT NULL"),
                ("{dataset_vector}", "chunk_id, embedding"),
            )
        )
    database.obj.close_all()
    return told


def words_found(url: str) -> int:
    """How many passages the full-text index finds for a word that stands in one."""
    open_database(load_settings(database={"url": url}))
    found = "dataset_chunk_text WHERE dataset_chunk_text MATCH 'pump'" if url.startswith("sqlite") else (
        "{dataset_chunk} WHERE search_vector @@ to_tsquery('simple', 'pump')")
    with connection():
        [(count,)] = fetch(f"SELECT count(*) FROM {found}")
    database.obj.close_all()
    return int(count)


def test_everything_comes_back_into_an_empty_database(
    filled: Settings, other: str, engine: str, folder: Path
) -> None:
    url = filled.database.url
    told = json.loads(run("backup", "b.backup", "--json", url=url).stdout)
    assert (told["file"], told["bytes"]) == ("b.backup", (folder / "b.backup").stat().st_size)
    assert (folder / "b.backup").stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == ["b.backup"]
    restored = run("restore", "b.backup", "--json", url=other)
    assert json.loads(restored.stdout) == {"sessions": 2, "interrupted": 0, "applied": []}
    assert everything(other) == everything(url)
    assert words_found(other) == 1
    assert engine != "sqlite" or Path(other.removeprefix("sqlite:///")).stat().st_mode & 0o777 == 0o600
    assert run("doctor", url=other).output.startswith("2 sessions examined, 0 findings")
    assert run("backup", "again.backup", url=other).output.startswith("again.backup: ")


def test_a_backup_of_an_older_release_is_brought_up_to_date(
    engine: str, other: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with another_database(engine, request, tmp_path) as older:
        opened = open_database(load_settings(database={"url": older}))
        with connection(), exclusive():
            Runner(opened, str(ROOT / "db" / "migrations"), schema=opened.schema).up("0001_initial")
        opened.close_all()
        run("backup", "b.backup", url=older)
        told = json.loads(run("restore", "b.backup", "--json", url=other).stdout)
    assert told["sessions"] == 0 and told["applied"][0].startswith("0002")
    assert run("doctor", url=other).exit_code == 0


def test_an_answer_without_an_end_is_interrupted_in_the_copy_and_goes_on_in_the_original(
    filled: Settings, other: str
) -> None:
    with connection():
        session_id = Conversation.select(Conversation.id).first().id
    start = Start(ALICE.tenant_id, session_id, {"role": "user", "content": "Why?", "id": "open"})
    RunService.begin(start, this_process(), 3600)
    with connection():
        journal.write(this_process(), [(start.id, 1, journal.encode([TextDelta("Because")]))])
    run("backup", "b.backup", url=filled.database.url)
    assert json.loads(run("restore", "b.backup", "--json", url=other).stdout)["interrupted"] == 1
    *_, answer = ConversationService.text(ALICE, session_id).parsed().entries
    assert (answer["id"], answer["content"], answer["finish_reason"]) == ("open", "Because", "interrupted")
    assert run("doctor", url=other).exit_code == 0
    open_database(filled)
    with connection():
        assert fetch("SELECT status FROM {run} WHERE id = %s", [start.id]) == [("active",)]


def test_a_file_that_is_there_stays_unless_it_is_forced(filled: Settings, folder: Path) -> None:
    (folder / "b.backup").write_text("older")
    assert "b.backup is there already; --force replaces it" in refused("backup", "b.backup", url=filled.database.url)
    assert (folder / "b.backup").read_text() == "older"
    run("backup", "b.backup", "--force", url=filled.database.url)
    assert (folder / "b.backup").read_bytes()[:5] in (b"SQLit", b"PGDMP")
    assert (folder / "b.backup").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("target", "said"), [
    ("no/b.backup", "there is no folder no"), (".", "is a folder; name a file in it"),
])
def test_a_place_that_takes_no_file_is_refused(filled: Settings, target: str, said: str) -> None:
    assert said in refused("backup", target, url=filled.database.url)


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_the_databases_own_files_are_never_a_target(store: Settings, engine: str, ending: str, folder: Path) -> None:
    if engine != "sqlite":
        pytest.skip("PostgreSQL's files are its own")
    path = store.database.url.removeprefix("sqlite:///") + ending
    (folder / "link").symlink_to(path)
    for target in (path, "link"):
        assert "belongs to the database itself" in refused("backup", target, "--force", url=store.database.url)


def test_a_database_that_is_not_there_or_not_ours_has_no_backup(other: str, engine: str, folder: Path) -> None:
    said = refused("backup", "b.backup", url=other)
    assert ("there is no database at" if engine == "sqlite" else "holds no Chatkeep database") in said
    if engine == "sqlite":
        assert not Path(other.removeprefix("sqlite:///")).exists(), "it was made by looking for it"
        with sqlite3.connect(other.removeprefix("sqlite:///")) as theirs:
            theirs.execute("CREATE TABLE conversation (id text)")
        theirs.close()
        assert "holds no Chatkeep database" in refused("backup", "b.backup", url=other)
    assert os.listdir(folder) == []


@pytest.fixture
def on_postgres(engine: str) -> None:
    if engine != "postgres":
        pytest.skip("SQLite needs no other program")


class Stopped(BaseException):
    """As Ctrl-C would be."""


def stop(done: int, total: int | None) -> None:
    raise Stopped


@pytest.fixture
def slow(folder: Path) -> Path:
    """A pg_dump that takes a minute."""
    program = folder / "slow"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] || exec sleep 60\nexec {PROGRAMS / "pg_dump"} "$@"\n')
    program.chmod(0o755)
    return program


def test_a_backup_that_is_stopped_leaves_no_file(filled: Settings, folder: Path, slow: Path) -> None:
    began = time.monotonic()
    with pytest.raises(Stopped):
        back_up(filled, folder / "b.backup", stop, pg_dump=str(slow))
    assert os.listdir(folder) == ["slow"]
    assert time.monotonic() - began < 30, "pg_dump goes on"


@pytest.mark.usefixtures("on_postgres")
def test_a_backup_that_is_told_to_stop_leaves_no_file(filled: Settings, folder: Path, slow: Path) -> None:
    words = [sys.executable, "-m", "api.cli", "backup", "b.backup", "--pg-dump", str(slow)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CHATKEEP_DATABASE_URL": filled.database.url}
    with subprocess.Popen(words, env=environment) as process:
        wait_until(lambda: any(name.endswith(".part") for name in os.listdir(folder)))
        process.terminate()
        assert process.wait(20) == 143
    assert os.listdir(folder) == ["slow"]


NO_VIEWS = """CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'no views today'; END $$;
    CREATE EVENT TRIGGER no_views ON ddl_command_start WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION public.refuse()"""


def test_a_restore_that_is_stopped_leaves_the_database_empty(
    filled: Settings, other: str, engine: str, folder: Path
) -> None:
    run("backup", "b.backup", url=filled.database.url)
    if engine == "sqlite":
        with pytest.raises(Stopped):
            restore(load_settings(database={"url": other}), folder / "b.backup", stop)
    else:
        execute(other, NO_VIEWS)
        assert "pg_restore refused: could not execute query: ERROR:  no views today" in refused(
            "restore", "b.backup", url=other)
        execute(other, "DROP EVENT TRIGGER no_views")
        assert execute(other, "SELECT count(*) FROM pg_class WHERE relname IN ('dialog', 'conversation')") == [(0,)]
    assert json.loads(run("restore", "b.backup", "--json", url=other).stdout)["sessions"] == 2


def test_a_database_that_holds_something_is_never_restored_into(filled: Settings) -> None:
    url = filled.database.url
    run("backup", "b.backup", url=url)
    before = everything(url)
    assert "already; " in refused("restore", "b.backup", url=url)
    assert everything(url) == before


@pytest.mark.parametrize(("content", "said"), [
    (b"", "neither a SQLite database nor an archive of pg_dump"), (b"PK\x03\x04", "neither a SQLite database"),
    (b"SQLite format 3\x00" + b"x" * 5000, None), (b"PGDMP" + b"x" * 5000, None),
])
def test_a_file_that_is_no_backup_is_refused(
    other: str, folder: Path, engine: str, content: bytes, said: str | None
) -> None:
    (folder / "x").write_bytes(content)
    fits = engine == "postgres" or not content.startswith(b"PGDMP")
    wanted = said or ("Error: " if fits else f"and CHATKEEP_DATABASE_URL names {engine}")
    assert wanted in refused("restore", "x", url=other)
    if engine == "sqlite":
        assert not Path(other.removeprefix("sqlite:///")).exists()


def test_a_backup_of_a_newer_release_is_refused(filled: Settings, other: str, engine: str) -> None:
    history = "schema_migration" if engine == "sqlite" else "chatkeep.schema_migration"
    with connection():
        database.execute_sql(f"INSERT INTO {history} (name, applied) VALUES ('9999_future', CURRENT_TIMESTAMP)")
    try:
        run("backup", "b.backup", url=filled.database.url)
    finally:
        open_database(filled)
        with connection():
            database.execute_sql(f"DELETE FROM {history} WHERE name = '9999_future'")
    assert "newer release, which has migration 9999_future" in refused("restore", "b.backup", url=other)


def test_another_programs_database_is_refused(engine: str, other: str, folder: Path) -> None:
    if engine != "sqlite":
        pytest.skip("pg_dump's archives are told apart by their schema")
    with sqlite3.connect(folder / "theirs") as theirs:
        theirs.execute("CREATE TABLE conversation (id text)")
    theirs.close()
    assert "theirs holds no Chatkeep database" in refused("restore", "theirs", url=other)


def test_a_log_that_another_database_left_is_never_played_into_this_one(
    filled: Settings, other: str, engine: str, folder: Path
) -> None:
    if engine != "sqlite":
        pytest.skip("PostgreSQL's log is its own")
    run("backup", "b.backup", url=filled.database.url)
    path = Path(other.removeprefix("sqlite:///"))
    left = path.with_name(path.name + "-wal")
    left.write_bytes(b"x" * 100)
    assert "is left of another database or of a killed restore" in refused("restore", "b.backup", url=other)
    left.unlink()
    path.touch(0o640)
    assert run("restore", "b.backup", url=other).output == "2 sessions are there\n"
    assert path.stat().st_mode & 0o777 == 0o640, "a file that was there keeps its rights"


def test_a_damaged_page_is_found_before_anything_is_restored(
    filled: Settings, other: str, engine: str, folder: Path
) -> None:
    if engine != "sqlite":
        pytest.skip("PostgreSQL's archives say so themselves")
    run("backup", "b.backup", url=filled.database.url)
    whole = bytearray((folder / "b.backup").read_bytes())
    whole[20_000:24_000] = os.urandom(4_000)
    (folder / "b.backup").write_bytes(whole)
    assert "b.backup" in refused("restore", "b.backup", url=other)
    assert not Path(other.removeprefix("sqlite:///")).exists()


@pytest.mark.parametrize(("damaged", "said"), [
    (b"Because. Because. Because. ", "conversation{page} {id}: message isn't UTF-8: byte "),
    (b"A pump moves water.", "dataset_chunk {id}: content isn't UTF-8: byte "),
])
def test_a_text_that_is_overwritten_is_found_before_anything_is_restored(
    filled: Settings, other: str, engine: str, folder: Path, damaged: bytes, said: str
) -> None:
    if engine != "sqlite":
        pytest.skip("PostgreSQL's archives are compressed")
    run("backup", "b.backup", url=filled.database.url)
    (folder / "b.backup").write_bytes((folder / "b.backup").read_bytes().replace(damaged, b"\xff" * len(damaged), 1))
    printed = refused("restore", "b.backup", url=other)
    open_database(filled)
    with connection():
        ids = {id for table in ("conversation", "dataset_chunk") for (id,) in fetch(f"SELECT id FROM {table}")}
    told = {f"b.backup is damaged: {said.format(id=id, page=page)}" for id in ids for page in ("", "_page")}
    assert any(sentence in printed for sentence in told)
    assert not Path(other.removeprefix("sqlite:///")).exists()


@pytest.mark.usefixtures("on_postgres")
@pytest.mark.parametrize(("program", "said"), [
    (OLDER_PROGRAMS / "pg_dump", "needs pg_dump 18 or newer; name one by --pg-dump PATH"),
    ("/nowhere/pg_dump", "No such file or directory; this server needs pg_dump 18 or newer"),
    ("/bin/true", "is of version unknown"),
])
def test_a_pg_dump_that_cannot_read_the_server_is_refused(
    filled: Settings, folder: Path, program: Any, said: str
) -> None:
    assert said in refused("backup", "b.backup", "--pg-dump", str(program), url=filled.database.url)
    assert os.listdir(folder) == []


@pytest.mark.usefixtures("on_postgres")
def test_a_pg_restore_that_cannot_read_the_archive_is_refused_with_the_way_to_a_newer_one(
    filled: Settings, other: str
) -> None:
    run("backup", "b.backup", url=filled.database.url)
    said = refused("restore", "b.backup", "--pg-restore", str(OLDER_PROGRAMS / "pg_restore"), url=other)
    assert "pg_restore refused: unsupported version" in said and "name a newer one by --pg-restore PATH" in said


@pytest.mark.usefixtures("on_postgres")
def test_a_password_is_in_the_environment_and_on_no_command_line(filled: Settings, other: str, folder: Path) -> None:
    for program in ("pg_dump", "pg_restore"):
        spy = folder / program
        spy.write_text(f'#!/bin/sh\necho "$@" >> argv\necho "$PGPASSWORD" >> env\nexec {PROGRAMS / program} "$@"\n')
        spy.chmod(0o755)
    with_password = [url.replace("postgres:@", f"postgres:{SECRET}@") for url in (filled.database.url, other)]
    assert all(SECRET in url for url in with_password)
    run("backup", "b.backup", "--pg-dump", str(folder / "pg_dump"), url=with_password[0])
    run("restore", "b.backup", "--pg-restore", str(folder / "pg_restore"), url=with_password[1])
    assert SECRET not in (folder / "argv").read_text()
    assert (folder / "env").read_text().count(SECRET) == 2


@pytest.mark.usefixtures("on_postgres")
def test_only_our_schema_goes_into_the_archive_and_it_comes_back_under_its_own_name(
    filled: Settings, other: str
) -> None:
    execute(filled.database.url, "CREATE TABLE IF NOT EXISTS public.theirs (id text)")
    run("backup", "b.backup", url=filled.database.url)
    said = refused("restore", "b.backup", url=other, CHATKEEP_DATABASE_SCHEMA="elsewhere")
    assert "holds the schema chatkeep, not elsewhere; CHATKEEP_DATABASE_SCHEMA" in said
    execute(other, "CREATE SCHEMA chatkeep")
    run("restore", "b.backup", url=other)
    tables = "SELECT table_schema FROM information_schema.tables WHERE table_name IN ('theirs', 'conversation')"
    assert execute(other, tables) == [("chatkeep",)]
