"""What the services tell whoever counts: of the ends that no reader sees, of the journal, of documents."""

import threading
from array import array
from typing import Any

import pytest

from conf.settings import IngestSettings
from db.database import change, connection
from db.document import CONVERSATIONS
from services.errors import Unavailable
from services.events import End, ErrorCode, ReasoningDelta, ReasoningStart, TextDelta
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import ATTEMPTS, Ingestion
from services.observer import Observer
from services.principal import Principal
from services.runs.live import LiveRun, failure
from services.runs.rows import RunService
from services.runs.values import Outcome, Start
from services.runs.workers import Workers
from tests.processes import wait_until

ACME = Principal("acme")
ELSEWHERE = "another-host:4711:1.5"
QUICK = IngestSettings(poll=0.05, lease=1)


class Notes(Observer):
    """All that was told, in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def deltas_written(self, count: int) -> None:
        self.told.append(count)

    def run_ended(self, outcome: str, error_code: str | None = None, first_token: float | None = None) -> None:
        self.told.append((outcome, error_code, first_token is not None))

    def document_ended(self, result: str) -> None:
        self.told.append(result)

    def document_lease_lost(self) -> None:
        self.told.append("lease lost")


@pytest.fixture
def notes() -> Notes:
    return Notes()


def started(lease: float = 60, owner: str = "me") -> Start:
    with connection():
        id = CONVERSATIONS.create({"tenant_id": "acme", "dialog_id": "chat"}, None).id
    start = Start("acme", id, {"role": "user", "content": "q", "id": "t1"})
    RunService.begin(start, owner, lease)
    return start


def test_a_run_tells_its_deltas_when_they_are_on_disk_and_its_end(store: Any, notes: Notes) -> None:
    run = LiveRun(started(), "me", lambda: None, observer=notes)
    for event in (ReasoningStart(), ReasoningDelta("hm"), TextDelta("one"), TextDelta("two")):
        run.publish(event)
    assert notes.told == []
    assert run.waits_since is not None
    run.wrote(3)
    assert (notes.told, run.waits_since is None) == ([2], False)
    run.end(End(), Outcome.SUCCESS)
    assert (notes.told, run.waits_since) == ([2, 1, ("success", None, True)], None)
    run.end(failure(ErrorCode.TIMEOUT, "late"), Outcome.ERROR)
    assert len(notes.told) == 3


@pytest.mark.parametrize(("deed", "outcome"), [
    ("UPDATE {run} SET owner = 'other'", "taken"), ("DELETE FROM {conversation}", "deleted"),
])
def test_an_answer_that_is_not_stored_is_no_success(store: Any, notes: Notes, deed: str, outcome: str) -> None:
    run = LiveRun(started(), "me", lambda: None, observer=notes)
    with connection():
        change(deed)
    run.end(End(), Outcome.SUCCESS)
    assert notes.told == [(outcome, "INTERNAL_ERROR", False)]


def test_a_bug_in_storing_is_told_as_such(store: Any, notes: Notes) -> None:
    run = LiveRun(started(), "me", lambda: None, observer=notes)
    run.publish(TextDelta(object()))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        run.end(End(), Outcome.SUCCESS)
    assert notes.told == [("not_stored", "INTERNAL_ERROR", False)]


def test_a_lost_run_is_told_by_who_ends_it(store: Any, notes: Notes) -> None:
    started(lease=-1, owner=ELSEWHERE)
    workers = Workers(store, notes)
    workers.open()
    started(lease=-1, owner=ELSEWHERE)
    wait_until(lambda: notes.told == [("lost", None, False)] * 2)
    workers.close()


class Slow:
    """An embedding model that waits for the test, or can't be had."""

    name = "slow"

    def __init__(self, opened: threading.Event | None = None) -> None:
        self.opened = opened

    def embed(self, texts: Any) -> Any:
        if self.opened is None:
            raise Unavailable("not now")
        self.opened.wait(20)
        return [array("f", [1.0, 2.0]) for _ in texts]


def put(name: str = "a.txt", content: bytes = b"A zebra.", embedding: str = "") -> Any:
    dataset = DatasetService.create(ACME, f"docs of {name}", embedding_model=embedding)
    return DocumentService.put(ACME, dataset.id, name, content)[0]


@pytest.mark.parametrize(("attempts", "content", "told"), [
    (0, b"A zebra.", ["done"]), (0, b"%PDF-1.7 broken", ["failed"]), (1, b"A zebra.", ["lease lost", "done"]),
    (ATTEMPTS, b"A zebra.", ["lease lost", "failed"]),
])
def test_a_document_tells_its_end_and_a_parser_that_fell_silent(
    store: Any, notes: Notes, attempts: int, content: bytes, told: list[str]
) -> None:
    put("a.pdf" if content.startswith(b"%PDF") else "a.txt", content)
    with connection():
        change("UPDATE {dataset_document} SET owner = 'other', lease_until = {now} - 1, attempts = %s", [attempts])
    ingestion = Ingestion(QUICK, lambda name: None, notes)
    ingestion.step()
    ingestion.close()
    assert notes.told == told


@pytest.mark.parametrize("result", ["lost", "postponed"])
def test_a_document_that_is_not_parsed_to_its_end_is_told_too(store: Any, notes: Notes, result: str) -> None:
    opened = threading.Event() if result == "lost" else None
    ingestion = Ingestion(QUICK, lambda name: Slow(opened), notes)
    document = put(embedding="slow")
    parsing = threading.Thread(target=ingestion.step)
    parsing.start()
    if opened:
        wait_until(lambda: DocumentService.get(ACME, document.dataset_id, document.id).owner)
        DocumentService.stop(ACME, document.dataset_id, [document.id])
        opened.set()
    parsing.join(20)
    ingestion.close()
    assert notes.told == [result]


def test_documents_that_nobody_parses_are_counted_with_the_leases(store: Any) -> None:
    opened = threading.Event()
    ingestion = Ingestion(QUICK, lambda name: Slow(opened))
    for n in range(3):
        put(f"{n}.txt", embedding="slow")
    ingestion.open()
    wait_until(lambda: ingestion.waiting == 2)
    opened.set()
    wait_until(lambda: ingestion.waiting == 0)
    ingestion.close()
