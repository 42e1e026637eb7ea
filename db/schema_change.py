"""Changing tables that servers are using: what a migration may do to them besides a plain `ALTER TABLE`.

An index is built beside the writers, a new column is filled in batches: both in a migration with `atomic = False`,
whose every step may be repeated, so that an interrupted one goes on where it was. On SQLite, which has one
writer at a time anyway, a migration is one transaction, and an interrupted one left nothing.
"""

from collections.abc import Callable

from db.database import Pool
from db.sqlite import SQLITE

Told = Callable[[str, int, int], None]
"""What a migration says while it goes through many rows: the table, the rows done, the rows in all."""

LOCK_WAIT = "2s"  # for a table: whoever comes later waits behind a migration that waits


def create_index(db: Pool, name: str, table: str, columns: str) -> None:
    """Build an index once. `columns` is what stands behind the table: `(a, b DESC) WHERE ..`."""
    if db.dialect is SQLITE:
        db.execute_sql(f"CREATE INDEX IF NOT EXISTS {name} ON {table} {columns}")
        return
    db.execute_sql("SET lock_timeout = 0")  # it waits for older transactions, and nobody waits for it
    try:
        broken = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid"
        if db.execute_sql(broken, (f'"{db.schema}".{name}',)).fetchone():
            db.execute_sql(f'DROP INDEX CONCURRENTLY "{db.schema}".{name}')
        db.execute_sql(f'CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON "{db.schema}".{table} {columns}')
    finally:
        db.execute_sql(f"SET lock_timeout = '{LOCK_WAIT}'")


def fill(db: Pool, table: str, key: str, assignment: str, lacking: str, batch: int = 1_000) -> None:
    """`UPDATE table SET assignment WHERE lacking`, so many rows a commit in the order of their `key`, a text.

    `lacking` is false for a row that has been filled: it isn't written again by a second try.
    """
    place = f'"{db.schema}".{table}' if db.schema else table
    mark = "?" if db.dialect is SQLITE else "%s"
    keys = f"SELECT {key} FROM {place} WHERE {key} > {mark} ORDER BY {key} LIMIT {batch}"
    update = f"UPDATE {place} SET {assignment} WHERE {key} > {mark} AND {key} <= {mark} AND ({lacking})"
    [(total,)] = db.execute_sql(f"SELECT count(*) FROM {place}").fetchall()
    last, done = "", 0
    while found := db.execute_sql(keys, (last,)).fetchall():
        before, last = last, found[-1][0]
        db.execute_sql(update, (before, last))
        done += len(found)
        db.told(table, done, total)
