"""Migrations of tables that servers are using: nobody waits long, what was interrupted goes on, old servers go on."""

import re
import threading
import time
from typing import Any

import psycopg2
import pytest

from conf.settings import Settings
from db.database import connection, database, fetch, open_database
from db.migrate import migrate
from db.models import Tenant
from db.schema_change import create_index, fill
from services.doctor import Doctor
from tests.db.old_database import FIXTURES, contents, old_tables, restore
from tests.statements import listening

ROWS = 2_500


@pytest.fixture
def old(fresh: Settings, engine: str) -> Settings:
    """A database of the first migration, open."""
    restore(fresh, engine)
    open_database(fresh)
    return fresh


def test_what_an_old_server_writes_fits_into_the_new_tables(fresh: Settings, engine: str) -> None:
    migrate(fresh)
    restore(fresh, engine, rows_only=True)
    open_database(fresh)
    with connection():
        count = sum(len(rows) for rows in contents(old_tables()).values())
    written = (FIXTURES / f"0001_{engine}.sql").read_text().count("\nINSERT INTO ")
    assert count == written - 1, "all but the history of migrations"
    assert not [found for found in Doctor(30).examine() if found.check != "runs"]


def test_no_index_of_an_old_table_keeps_its_writers_waiting(old: Settings, engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite has one writer at a time anyway")
    with connection():
        tables = set(old_tables())
    with listening() as heard:
        migrate(old)
    made = [re.search(r"INDEX (.*) ON \"chatkeep\"\.(\w+)", text) for text in heard.statements if "CREATE" in text]
    held = [match[0] for match in made if match and match[2] in tables and "CONCURRENTLY" not in match[1]]
    assert not held
    assert any(match and "CONCURRENTLY" in match[1] for match in made)


def test_a_long_transaction_delays_the_migration_and_nobody_else(old: Settings, engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("on SQLite a reader delays nobody")
    reader, other = (psycopg2.connect(old.database.url, options="-c statement_timeout=5s") for _ in range(2))
    other.autocommit = True
    reader.cursor().execute("SELECT * FROM chatkeep.dataset")  # and its transaction stays open
    migration = threading.Thread(target=migrate, args=(old,), daemon=True)
    migration.start()
    waited = []
    try:
        while sum(waited) < 4:
            began = time.monotonic()
            other.cursor().execute("SELECT * FROM chatkeep.dataset")
            time.sleep(0.02)
            waited.append(time.monotonic() - began)
        assert max(waited) < 3, "who came later waited behind the migration"
        assert migration.is_alive()
    finally:
        reader.close()
        migration.join(30)
    assert not migration.is_alive()
    other.cursor().execute("SELECT avatar FROM chatkeep.dataset")
    other.close()


def test_an_index_whose_building_was_interrupted_is_built_anew(store: Settings, engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("there its transaction left nothing")
    its = "WHERE indexrelid = 'chatkeep.tenant_test'::regclass"
    with connection():
        try:
            create_index(database.obj, "tenant_test", "tenant", "(create_time)")
            database.execute_sql(f"UPDATE pg_index SET indisvalid = false {its}")
            create_index(database.obj, "tenant_test", "tenant", "(create_time)")
            assert fetch(f"SELECT indisvalid FROM pg_index {its}") == [(True,)]
            create_index(database.obj, "tenant_test", "tenant", "(create_time)")
        finally:
            database.execute_sql("DROP INDEX chatkeep.tenant_test")


class Stopped(Exception):
    """Somebody stopped the migration."""


def test_filling_a_column_goes_in_batches_is_told_and_goes_on_where_it_was_stopped(store: Settings) -> None:
    told: list[tuple[str, int, int]] = []

    def tell(*progress: Any) -> None:
        told.append(progress)
        if len(told) == 2:
            raise Stopped

    database.obj.told = tell
    with connection():
        for begin in range(0, ROWS, 500):
            Tenant.insert_many([{"name": str(n), "create_time": 0} for n in range(begin, begin + 500)]).execute()
        with pytest.raises(Stopped):
            fill(database.obj, "tenant", "id", "create_time = create_time + 1", "create_time = 0")
        assert fetch("SELECT create_time, count(*) FROM {tenant} GROUP BY 1 ORDER BY 1") == [(0, 500), (1, 2_000)]
        fill(database.obj, "tenant", "id", "create_time = create_time + 1", "create_time = 0")
        assert fetch("SELECT create_time, count(*) FROM {tenant} GROUP BY 1") == [(1, ROWS)]
    assert told == [("tenant", done, ROWS) for done in (1_000, 2_000, 1_000, 2_000, 2_500)]
