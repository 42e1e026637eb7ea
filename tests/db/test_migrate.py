"""Starting on a fresh database: one process migrates, the others wait, strangers' tables stay theirs."""

import json

import pytest

from conf.settings import Settings
from db.database import TABLES, connection, database, fetch, open_database
from db.migrate import SchemaTaken, migrate, pending
from tests.starts import run_together

EVERY = ["0001_initial", "0002_documents", "0003_document_indexes", "0004_document_switch"]
START = """
import json
from conf.settings import load_settings
from db.migrate import migrate
settings = load_settings(database={'url': sys.argv[1]})
go()
print(json.dumps(migrate(settings)))
"""


def run(*statements: str) -> None:
    with connection():
        for statement in statements:
            database.execute_sql(statement)


def tables() -> set[str]:
    with connection():
        return set(database.obj.get_tables(schema=database.obj.schema))


def in_our_schema(engine: str, table: str) -> str:
    return f"chatkeep.{table}" if engine == "postgres" else table


def migrate_and_reopen(settings: Settings) -> list[str]:
    try:
        return migrate(settings)
    finally:
        open_database(settings)


def test_a_fresh_database_gets_every_table_once(fresh: Settings) -> None:
    assert migrate_and_reopen(fresh) == EVERY
    assert tables() >= set(TABLES) - {"dataset_chunk_text"}
    assert pending(fresh) == []
    assert migrate_and_reopen(fresh) == []


def test_eight_processes_that_start_at_once_all_succeed_and_one_migrates(fresh: Settings) -> None:
    told = [json.loads(each) for each in run_together(START, fresh.database.url)]
    assert sorted(told) == [[]] * 7 + [EVERY]
    assert pending(fresh) == []
    with connection():
        assert fetch("SELECT count(*) FROM {conversation}") == [(0,)]


def test_processes_that_start_at_once_on_a_migrated_database_do_nothing(fresh: Settings) -> None:
    migrate_and_reopen(fresh)
    assert run_together(START, fresh.database.url, count=4) == ["[]"] * 4


@pytest.mark.parametrize("table", ["conversation", "run", "tenant", "message_index", "conversation_page", "dataset"])
def test_a_strangers_table_in_our_place_is_refused_with_a_sentence(fresh: Settings, engine: str, table: str) -> None:
    if engine == "postgres":
        run("CREATE SCHEMA chatkeep")
    name = in_our_schema(engine, table)
    run(f"CREATE TABLE {name} (id text, message text)", f"INSERT INTO {name} VALUES ('theirs', NULL)")
    with pytest.raises(SchemaTaken, match=rf"already holds another system's table '{table}'.*CHATKEEP_DATABASE_"):
        migrate_and_reopen(fresh)
    with connection():
        assert database.execute_sql(f"SELECT * FROM {name}").fetchall() == [("theirs", None)]
    assert tables() - {"schema_migration"} == {table}


def test_tables_of_the_same_names_in_other_schemas_are_left_alone(fresh: Settings, engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite has no schemas")
    places = [f"{schema}.{table}" for schema in ("ragflow", "public") for table in ("conversation", "dialog", "run")]
    run("CREATE SCHEMA ragflow", *(f"CREATE TABLE {name} (id text)" for name in places),
        *(f"INSERT INTO {name} VALUES ('theirs')" for name in places))
    assert migrate_and_reopen(fresh) == EVERY
    with connection():
        for name in places:
            assert database.execute_sql(f"SELECT * FROM {name}").fetchall() == [("theirs",)]
        assert fetch("SELECT count(*) FROM {conversation}") == [(0,)]
    everything = "SELECT schemaname FROM pg_tables WHERE schemaname IN ('ragflow', 'public')"
    with connection():
        assert len(fetch(everything)) == len(places)


def test_a_start_that_fails_half_way_leaves_nothing_and_the_next_one_succeeds(fresh: Settings, engine: str) -> None:
    if engine == "postgres":
        run("CREATE SCHEMA chatkeep")
    obstacle = in_our_schema(engine, "conversation_full")  # the last thing that the migration makes
    run(f"CREATE TABLE {obstacle} (id text)")
    with pytest.raises(Exception, match=r"already (exists|holds)"):
        migrate_and_reopen(fresh)
    assert tables() - {"schema_migration"} == {"conversation_full"}
    run(f"DROP TABLE {obstacle}")
    assert migrate_and_reopen(fresh) == EVERY
    assert tables() >= {"conversation", "conversation_page", "run"}


def test_a_failed_start_gives_the_lock_back(fresh: Settings, engine: str) -> None:
    if engine == "postgres":
        run("CREATE SCHEMA chatkeep")
    run(f"CREATE TABLE {in_our_schema(engine, 'conversation')} (id text)")
    for _ in range(2):
        with pytest.raises(SchemaTaken):
            migrate(fresh)
        open_database(fresh)
    run(f"DROP TABLE {in_our_schema(engine, 'conversation')}")
    assert run_together(START, fresh.database.url, count=2) in ([json.dumps(EVERY), "[]"], ["[]", json.dumps(EVERY)])


def test_a_database_that_lacks_a_migration_says_so(fresh: Settings) -> None:
    assert pending(fresh) == EVERY
