"""Parsing in the background: leases, failures, dead workers, and documents that change under them."""

import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from peewee import OperationalError

from conf.settings import IngestSettings, Settings
from db.database import change, connection, transaction
from db.models import Dataset, DatasetDocument
from db.text_index import search_text
from services.errors import ModelFailure, Unavailable
from services.events import ErrorCode
from services.knowledge import chunks
from services.knowledge.chunks import ChunkService
from services.knowledge.datasets import DatasetService, lock_dataset
from services.knowledge.documents import DocumentService, Kept
from services.knowledge.ingestion import ATTEMPTS, Ingestion
from services.principal import Principal
from services.rag.model_failures import failure
from services.rag.retrievers import LexicalRetriever
from tests.processes import wait_until

ACME = Principal("acme")
QUICK = IngestSettings(poll=0.05, lease=30)


class Counting:
    """An embedding model that does what the test says before it answers."""

    name = "counting"

    def __init__(self, before: Any = lambda: None) -> None:
        self.before = before

    def embed(self, texts: Sequence[str]) -> list["array[float]"]:
        self.before()
        return [array("f", [1.0, 2.0]) for _ in texts]


@pytest.fixture
def dataset(store: Settings) -> Dataset:
    return DatasetService.create(ACME, "docs")


@pytest.fixture
def ingestion(store: Settings) -> Iterator[Ingestion]:
    made = Ingestion(QUICK, lambda name: None)
    yield made
    made.close()


def put(dataset: Dataset, name: str = "a.txt", content: bytes = b"A zebra.") -> DatasetDocument:
    return DocumentService.put(ACME, dataset.id, name, content)[0]


def now(document: DatasetDocument) -> DatasetDocument:
    return DocumentService.get(ACME, document.dataset_id, document.id)


def found(dataset: Dataset, word: str = "zebra") -> int:
    return len(LexicalRetriever("acme", [dataset.id]).retrieve(word, 9))


def test_what_waits_is_parsed_in_order_of_arrival(dataset: Dataset, ingestion: Ingestion) -> None:
    documents = [put(dataset, f"{n}.txt") for n in range(3)]
    assert [ingestion.step() for _ in range(4)] == [*(document.id for document in documents), None]
    assert {(now(each).run, now(each).progress, now(each).owner) for each in documents} == {("DONE", 1.0, None)}
    assert found(dataset) == 3


def test_a_tenant_with_one_document_does_not_wait_for_all_of_another(store: Settings, ingestion: Ingestion) -> None:
    waiting = {}
    for tenant, count in (("many", 5), ("a few", 2), ("zoo", 1)):
        made = DatasetService.create(Principal(tenant), "docs")
        for n in range(count):
            waiting[DocumentService.put(Principal(tenant), made.id, f"{n}.txt", b"A zebra.")[0].id] = tenant
    order = [waiting[str(ingestion.step())] for _ in waiting]
    assert order == ["a few", "many", "zoo", "a few", "many", "many", "many", "many"]


class Held:
    """An embedding model that waits for the test where a text is slow, and can't be had where one is lost."""

    name = "held"

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> list["array[float]"]:
        if "lost" in "".join(texts):
            raise Unavailable("not now")
        if "slow" in "".join(texts):
            self.begun.set()
            assert self.free.wait(20)
        return [array("f", [1.0, 2.0]) for _ in texts]


def put_for(tenant: str, *names: str) -> list[DatasetDocument]:
    """Documents whose text is their name, in a new dataset of this tenant."""
    owner = Principal(tenant)
    made = DatasetService.create(owner, "docs", embedding_model="held")
    return [DocumentService.put(owner, made.id, name, name.encode())[0] for name in names]


def now_of(document: DatasetDocument) -> DatasetDocument:
    return DocumentService.get(Principal(document.tenant_id), document.dataset_id, document.id)


@pytest.fixture
def held(store: Settings) -> Iterator[Held]:
    model = Held()
    yield model
    model.free.set()


def test_a_quick_document_does_not_wait_for_the_slow_ones_of_another_tenant(held: Held) -> None:
    slow = put_for("acme", "slow1", "slow2", "slow3")
    with closing(Ingestion(QUICK, lambda name: held)) as ingestion:
        ingestion.open()
        assert held.begun.wait(10)
        quick = put_for("zoo", "a", "b") + put_for("aaa", "c")
        ingestion.wake()
        wait_until(lambda: {now_of(document).run for document in quick} == {"DONE"})
        assert [bool(now_of(document).owner) for document in slow] == [True, False, False], "one at a time a tenant"
        held.free.set()
        wait_until(lambda: {now_of(document).run for document in slow} == {"DONE"})


def test_a_document_that_is_put_off_leaves_the_other_ones_their_worker(held: Held) -> None:
    [slow], [lost] = put_for("acme", "slow"), put_for("zoo", "lost")
    with closing(Ingestion(QUICK, lambda name: held)) as ingestion:
        parsing = threading.Thread(target=ingestion.step)
        parsing.start()
        assert held.begun.wait(10)
        assert ingestion.step() == lost.id
        assert (now_of(lost).owner, now_of(lost).attempts) == (None, 0)
        assert (now_of(slow).owner, now_of(slow).attempts) == (ingestion.owner, 1)
        held.free.set()
        parsing.join(20)
    assert now_of(slow).run == "DONE"


def test_a_tenant_whose_document_met_a_bug_is_served_again(held: Held) -> None:
    [document] = put_for("acme", "a")
    with closing(Ingestion(QUICK, lambda name: 1 / 0)) as ingestion:
        with pytest.raises(ZeroDivisionError):
            ingestion.step()
        ingestion._embedding = lambda name: held
        assert ingestion.step() == document.id
    assert now_of(document).run == "DONE"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_dies_is_replaced_while_the_other_one_works(held: Held) -> None:
    [slow], bugs = put_for("acme", "slow"), [ZeroDivisionError("a bug"), ZeroDivisionError("again")]

    def model_or_bug(name: str) -> Held:
        if held.begun.is_set() and bugs:
            raise bugs.pop()
        return held

    with closing(Ingestion(IngestSettings(poll=0.05, lease=1), model_or_bug)) as ingestion:
        ingestion.open()
        assert held.begun.wait(10)
        [other] = put_for("zoo", "other")
        wait_until(lambda: now_of(other).run == "DONE")
        assert (now_of(other).attempts, now_of(slow).run) == (3, "RUNNING")
        held.free.set()


def test_nobody_waits_for_a_datasets_row_while_the_words_of_a_document_are_made(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free = threading.Event(), threading.Event()

    def made(text: str) -> str:
        begun.set()
        assert free.wait(5), "the row is held meanwhile"
        return search_text(text)

    monkeypatch.setattr(chunks, "search_text", made)
    with closing(Ingestion(QUICK, lambda name: None)) as ingestion:
        document = put(dataset)
        thread = threading.Thread(target=ingestion.step)
        thread.start()
        assert begun.wait(10)
        with connection(), transaction():
            lock_dataset(ACME, dataset.id)
        free.set()
        thread.join(20)
    assert now(document).run == "DONE"


def test_the_background_thread_wakes(dataset: Dataset, ingestion: Ingestion) -> None:
    ingestion.open()
    document = put(dataset)
    ingestion.wake()
    for _ in range(100):
        if now(document).run == "DONE":
            return
        threading.Event().wait(0.05)
    raise AssertionError(now(document).__data__)


def test_two_workers_never_parse_the_same_document(dataset: Dataset, ingestion: Ingestion) -> None:
    other = Ingestion(QUICK, lambda name: None)
    ids = {put(dataset, f"{n}.txt").id for n in range(20)}
    done: list[str] = []

    def work(worker: Ingestion) -> None:
        while (id := worker.step()) is not None:
            done.append(id)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in (ingestion, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert (len(done), set(done)) == (20, ids)
    assert DatasetService.get_by_id(ACME, dataset.id).chunk_count == 20


def claim(document: DatasetDocument, owner: str = "dead", seconds: float = -1, attempts: int = 1) -> None:
    with connection():
        change(
            "UPDATE {dataset_document} SET owner = %s, attempts = %s, lease_until = {now} + %s WHERE id = %s",
            [owner, attempts, seconds, document.id],
        )


def test_a_dead_workers_document_is_parsed_by_another_once_its_lease_is_over(
    dataset: Dataset, ingestion: Ingestion
) -> None:
    document = put(dataset)
    claim(document, seconds=60)
    assert ingestion.step() is None
    claim(document, seconds=-1)
    assert ingestion.step() == document.id
    assert (now(document).run, found(dataset)) == ("DONE", 1)


def test_a_document_that_ends_its_workers_fails_with_a_sentence(dataset: Dataset, ingestion: Ingestion) -> None:
    document = put(dataset)
    claim(document, attempts=ATTEMPTS)
    ingestion.step()
    assert (now(document).run, now(document).progress) == ("FAIL", -1.0)
    assert "isn't tried again" in now(document).progress_msg
    DocumentService.start(ACME, dataset.id, [document.id])
    ingestion.step()
    assert now(document).run == "DONE"


@pytest.mark.parametrize("deed", ["cancel", "replace", "delete", "dataset", "take over"])
def test_a_document_that_changes_under_its_worker_is_not_stored(store: Settings, deed: str) -> None:
    dataset = DatasetService.create(ACME, "vectors", embedding_model="counting")
    deeds = {
        "cancel": lambda: DocumentService.stop(ACME, dataset.id, [document.id]),
        "replace": lambda: put(dataset, content=b"A lion."),
        "delete": lambda: DocumentService.delete(ACME, dataset.id, [document.id]),
        "dataset": lambda: DatasetService.delete(ACME, [dataset.id]),
        "take over": lambda: claim(document, "another", 60),
    }
    ingestion = Ingestion(QUICK, lambda name: Counting(deeds[deed]))
    document = put(dataset)
    ingestion.step()
    ingestion.close()
    assert found(dataset) == 0
    if deed in ("cancel", "replace", "take over"):
        assert now(document).run == {"cancel": "CANCEL"}.get(deed, "RUNNING")
        assert DatasetService.get_by_id(ACME, dataset.id).chunk_count == 0


@pytest.mark.parametrize("trouble", [OperationalError("a restart"), ZeroDivisionError("a bug")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_document_whose_worker_met_trouble_is_tried_again_in_the_same_process(
    store: Settings, trouble: Exception
) -> None:
    dataset = DatasetService.create(ACME, "vectors", embedding_model="counting")
    asked: list[int] = []

    def fail_once() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise trouble

    document = put(dataset)
    with closing(Ingestion(IngestSettings(poll=0.05, lease=1), lambda name: Counting(fail_once))) as ingestion:
        ingestion.open()
        wait_until(lambda: now(document).run == "DONE")
    assert found(dataset) == 1


def test_a_models_failure_is_the_documents_and_the_next_one_goes_on(store: Settings) -> None:
    dataset = DatasetService.create(ACME, "vectors", embedding_model="counting")

    def fail() -> None:
        raise ModelFailure(ErrorCode.TIMEOUT, "The model took too long.", "secret detail")

    ingestion = Ingestion(QUICK, lambda name: Counting(fail))
    document = put(dataset)
    ingestion.step()
    assert (now(document).run, now(document).progress_msg) == ("FAIL", "The model took too long.")
    ingestion._embedding = lambda name: None
    other = put(dataset, "b.txt")
    ingestion.step()
    assert "'counting'" in now(other).progress_msg
    ingestion._embedding = lambda name: Counting()
    DocumentService.start(ACME, dataset.id, [document.id, other.id])
    assert [ingestion.step(), ingestion.step(), ingestion.step()][2] is None
    assert found(dataset) == 2
    ingestion.close()


def test_an_embedding_server_that_takes_no_length_is_told_of_a_passage_not_of_a_conversation(store: Settings) -> None:
    dataset = DatasetService.create(ACME, "vectors", embedding_model="counting")

    def fail() -> None:
        raise failure(ErrorCode.CONTEXT_TOO_LONG, "HTTP 413: secret detail")

    document = put(dataset)
    ingestion = Ingestion(QUICK, lambda name: Counting(fail))
    ingestion.step()
    told = now(document).progress_msg
    ingestion.close()
    assert ("passage of the document" in told, "onversation" in told, "secret" in told) == (True, False, False)
    with pytest.raises(ModelFailure, match="passage of the document") as caught:
        ChunkService.add(ACME, dataset.id, document.id, "by hand", embedding=Counting(fail))
    assert caught.value.detail == "HTTP 413: secret detail"


def test_a_document_that_is_switched_off_while_it_is_parsed_is_off_afterwards(store: Settings) -> None:
    dataset = DatasetService.create(ACME, "vectors", embedding_model="counting")
    document = put(dataset)
    off = Counting(lambda: DocumentService.update(ACME, dataset.id, document.id, {"enabled": 0}))
    with closing(Ingestion(QUICK, lambda name: off)) as ingestion:
        ingestion.step()
    assert (now(document).run, found(dataset)) == ("DONE", 0)


def test_a_worker_that_stops_leaves_its_documents_to_others_at_once(dataset: Dataset) -> None:
    ingestion = Ingestion(QUICK, lambda name: None)
    document = put(dataset)
    claim(document, ingestion.owner, 60)
    ingestion._stopped.set()
    ingestion._keep()
    assert (now(document).owner, now(document).attempts, now(document).run) == (None, 0, "RUNNING")


def test_leases_are_renewed_while_a_document_is_parsed(dataset: Dataset) -> None:
    ingestion = Ingestion(IngestSettings(lease=1), lambda name: None)
    document = put(dataset)
    claim(document, ingestion.owner, 1)
    thread = threading.Thread(target=ingestion._keep)
    thread.start()
    threading.Event().wait(1.5)
    other = Ingestion(QUICK, lambda name: None)
    assert other.step() is None
    ingestion._stopped.set()
    thread.join()
    other.close()
    ingestion.close()


def test_a_replaced_document_keeps_its_passages_until_the_new_one_is_parsed(
    dataset: Dataset, ingestion: Ingestion
) -> None:
    document = put(dataset)
    ingestion.step()
    again, kept = DocumentService.put(ACME, dataset.id, "a.txt", b"A lion.")
    assert (again.id, kept, found(dataset)) == (document.id, Kept.CHANGED, 1)
    ingestion.step()
    assert (found(dataset), found(dataset, "lion")) == (0, 1)
    assert DocumentService.put(ACME, dataset.id, "a.txt", b"A lion.")[1] is Kept.AS_IT_WAS
    assert DocumentService.put(ACME, dataset.id, "b.txt", b"A lion.")[1] is Kept.ADDED


def test_a_vector_is_made_of_the_nearest_title_and_of_what_is_said_before_any_code() -> None:
    content = "Start it:\n\n```sh\nmake run\n```\n\nIt answers at once.\n"
    assert chunks.text_to_embed("Guide > First steps", content) == (
        "First steps\nStart it:\n\n\nIt answers at once.\n\n```sh\nmake run\n```\n"
    )
    assert chunks.text_to_embed("", "no title, and ```ticks``` in a line") == "no title, and ```ticks``` in a line"
