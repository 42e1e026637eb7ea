"""Many writers of one session, threads and processes, while readers take whole documents all the while."""

import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from peewee import OperationalError

from conf.settings import Settings, load_settings
from db.database import connection, database, fetch, transaction
from db.document import API4_CONVERSATIONS, CONVERSATIONS, Loaded, PagedDocument
from db.postgres import wait_for_notification
from tests.invariants import assert_sound, counters, turn_ids
from tests.starts import run_together

TENANT = "acme"
pytestmark = pytest.mark.timeout(60)
both_tables = pytest.mark.parametrize("document", [CONVERSATIONS, API4_CONVERSATIONS], ids=lambda d: d.table)

PROCESS = """
import threading
import time
from conf.settings import load_settings
from db.database import connection, open_database
from db.document import CONVERSATIONS
url, id, number = sys.argv[1:]
open_database(load_settings(database={'url': url, 'pool_timeout': 60}, document={'page_bytes': 1500}))
def write(thread):
    for n in range(5):
        name = f'{number}-{thread}-{n}'
        question = {'role': 'user', 'content': name, 'id': name, 'uid': name}
        answer = {'role': 'assistant', 'content': 'a' * 200, 'id': name}
        with connection():
            slot = {'message_id': name, 'chunks': [], 'doc_aggs': []}
            at = CONVERSATIONS.append('acme', id, [question, answer], [slot])
        sys.stdout.write(f'{at.first_seq} {name}\\n')  # one write: print makes two, and threads come between
threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
go()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture
def settings(url: str) -> Settings:
    """Pages of a few turns; threads wait for one of ten connections as long as it takes."""
    return load_settings(database={"url": url, "pool_timeout": 60}, document={"page_bytes": 1500})


def new(document: PagedDocument = CONVERSATIONS) -> str:
    with connection():
        return document.create({"tenant_id": TENANT, "dialog_id": "chat"}, "Hi").id


def say(document: PagedDocument, id: str, name: str) -> int:
    """Append a whole turn; where it landed."""
    question = {"role": "user", "content": name, "id": name, "uid": name}
    answer = {"role": "assistant", "content": "a" * 200, "id": name}
    slot = {"message_id": name, "chunks": [{"id": name}], "doc_aggs": []}
    with connection():
        return document.append(TENANT, id, [question, answer], [slot]).first_seq


def assert_whole(whole: Loaded) -> None:
    """A read shows each seq once, without a gap, and as many slots as ended turns, in their order."""
    assert [entry["seq"] for entry in whole.entries] == list(range(1, len(whole.entries) + 1))
    assert [slot["message_id"] for slot in whole.slots] == turn_ids(whole.entries)
    assert len(whole.entries) == 1 + 2 * len(whole.slots)


def crowd(work: Callable[[int], Any], count: int) -> list[Any]:
    """What `count` threads that begin together return; raises what any of them raised."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count), timeout=40))


class Readers:
    """Two threads that load whole documents until the block ends; every read is checked."""

    def __init__(self, document: PagedDocument, id: str) -> None:
        self.id = id
        self.reads: list[int] = []
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._ways = (document.load, lambda *names: document.load_text(*names).parsed())

    def _read(self, how: Callable[[str, str], Loaded]) -> None:
        while not self._done.is_set():
            with connection():
                whole = how(TENANT, self.id)
            assert_whole(whole)
            self.reads.append(len(whole.entries))

    def __enter__(self) -> "Readers":
        self._following = [self._pool.submit(self._read, how) for how in self._ways]
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        self._pool.shutdown()
        for reader in self._following:
            reader.result()


@both_tables
def test_64_threads_lose_nothing_and_no_read_is_torn(store, document: PagedDocument) -> None:
    id = new(document)
    with Readers(document, id) as readers:
        told = crowd(lambda number: [(say(document, id, f"{number}-{n}"), f"{number}-{n}") for n in range(5)], 64)
    assert len(set(readers.reads)) > 5, "the readers read while it grew"
    with connection():
        whole = document.load(TENANT, id)
        assert_whole(whole)
        assert_sound(id, document, limit=1500)
        assert counters(id, document)["page_count"] > 20
    landed = sorted(each for several in told for each in several)
    assert landed == [(entry["seq"], entry["id"]) for entry in whole.entries if entry["role"] == "user"]
    assert len(landed) == 320


def test_8_processes_lose_nothing_and_no_read_is_torn(store) -> None:
    id = new()
    with Readers(CONVERSATIONS, id) as readers:
        told = run_together(PROCESS, store.database.url, id)
    assert readers.reads
    with connection():
        whole = CONVERSATIONS.load(TENANT, id)
        assert_whole(whole)
        assert_sound(id, limit=1500)
    lines = sorted((int(seq), name) for output in told for seq, name in map(str.split, output.splitlines()))
    assert lines == [(entry["seq"], entry["id"]) for entry in whole.entries if entry["role"] == "user"]
    assert len(lines) == 160


@pytest.fixture
def legacy(store) -> Iterator[str]:
    message = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "a" * 300}] * 20
    with connection():
        yield CONVERSATIONS.row.create(
            tenant_id=TENANT, dialog_id="chat", format=0, next_seq=0, message=message, reference=[{}]
        ).id


def test_first_writers_of_a_legacy_row_mend_it_once(legacy: str) -> None:
    crowd(lambda number: say(CONVERSATIONS, legacy, f"new-{number}"), 16)
    whole = CONVERSATIONS.load(TENANT, legacy)
    assert [entry["seq"] for entry in whole.entries] == list(range(1, 73))
    assert sorted(entry["content"] for entry in whole.entries[40::2]) == sorted(f"new-{n}" for n in range(16))
    assert_sound(legacy)


def test_appends_beside_deletes_edits_and_rewinds_keep_the_counters_right(store) -> None:
    id = new()
    for n in range(60):
        say(CONVERSATIONS, id, f"old-{n}")

    def vote(entries: list[Any], slots: list[Any]) -> tuple[list[Any], list[Any]]:
        return [entry | {"thumbup": True} for entry in entries], slots

    def work(number: int) -> None:
        for n in range(8):
            say(CONVERSATIONS, id, f"new-{number}-{n}")
            with connection():
                CONVERSATIONS.delete_turn(TENANT, id, f"old-{number * 8 + n}")
                CONVERSATIONS.edit_turn(TENANT, id, f"new-{number}-{n // 2}", vote)
                if number == 0 and n % 4 == 3:
                    CONVERSATIONS.rewind(TENANT, id, 10**6)

    crowd(work, 7)
    with connection():
        whole = CONVERSATIONS.load(TENANT, id)
        assert_sound(id)
    kept = {f"old-{n}" for n in range(56, 60)} | {f"new-{number}-{n}" for number in range(7) for n in range(8)}
    assert set(turn_ids(whole.entries)) == kept


def test_rewinds_beside_appends_never_give_a_seq_twice(store) -> None:
    id = new()
    landed: list[int] = []

    def work(number: int) -> None:
        for n in range(10):
            landed.append(say(CONVERSATIONS, id, f"{number}-{n}"))
            if number == 0:
                with connection():
                    CONVERSATIONS.rewind(TENANT, id, landed[len(landed) // 2])

    crowd(work, 6)
    assert len(set(landed)) == 60
    with connection():
        assert_sound(id)


@pytest.mark.settings(database={"pool_size": 1, "pool_timeout": 60})
def test_a_full_pool_serves_all_who_wait_and_gets_every_connection_back(store: Settings) -> None:
    """Also those whose user failed, or whose connection was closed under it."""
    free = database.obj._free._value

    def work(n: int) -> None:
        for _ in range(10):
            with contextlib.suppress(ZeroDivisionError), connection():
                fetch("SELECT 1")
                if n % 3 == 1:
                    raise ZeroDivisionError
                if n % 3 == 2:
                    database.connection().close()

    with ThreadPoolExecutor(30) as pool:
        for future in [pool.submit(work, n) for n in range(30)]:
            future.result()
    assert database.obj._free._value == free


def test_a_listener_whose_connection_is_lost_is_told_so_in_the_databases_words(store: Settings, engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("nothing listens to a file")
    with pytest.raises(OperationalError), connection():
        with socket.socket(fileno=os.dup(database.connection().fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
        wait_for_notification(database.connection(), 5)


def test_collecting_a_cursor_of_a_connection_that_waits_for_the_lock_ends_at_once(store: Settings, engine: str) -> None:
    """The collector runs in any thread, also in the one that holds the lock which the other waits for."""
    if engine == "postgres":
        pytest.skip("PostgreSQL lets no thread wait with a mutex in its hand")
    waits, done = threading.Event(), threading.Event()

    def wait_beside_garbage() -> None:
        with connection():
            garbage: list[Any] = [database.execute_sql("SELECT 1 UNION SELECT 2")]
            garbage.append(garbage)
            del garbage
            waits.set()
            with transaction():
                done.set()

    gc.disable()
    try:
        with connection(), transaction():
            thread = threading.Thread(target=wait_beside_garbage)
            thread.start()
            assert waits.wait(5)
            time.sleep(0.3)  # it waits for the lock now
            began = time.monotonic()
            gc.collect()
            assert time.monotonic() - began < 5
            assert not done.is_set()
        thread.join(5)
        assert done.is_set()
    finally:
        gc.enable()
