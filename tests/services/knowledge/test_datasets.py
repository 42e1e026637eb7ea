"""Datasets: whose they are, what adding a text changes, and that the counters tell the truth."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from peewee import IntegrityError

from conf.settings import Settings
from db.database import change, connection, database
from db.models import Dataset, DatasetChunk, DatasetDocument
from services.errors import InvalidArgument, InvalidData, NotFound
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.rag.retrievers import LexicalRetriever

ALICE, CHARLIE = Principal("acme"), Principal("stranger")
LONG = "\n\n".join(f"Paragraph {number}. " + "word " * 150 for number in range(20))


@pytest.fixture
def dataset(store: Settings) -> Dataset:
    return DatasetService.create(ALICE, "docs", "What we know.")


def counts(dataset: Dataset) -> tuple[int, int]:
    """Documents and chunks as the dataset counts them; they must be what is there."""
    found = DatasetService.get_by_id(ALICE, dataset.id)
    documents = DocumentService.all(ALICE, dataset.id)
    with connection():
        held = [DatasetChunk.select().where(DatasetChunk.document_id == row.id).count() for row in documents]
    assert [row.chunk_count for row in documents] == held
    assert (found.document_count, found.chunk_count) == (len(documents), sum(held))
    return found.document_count, found.chunk_count


def test_a_tenant_has_a_name_once(dataset: Dataset) -> None:
    with pytest.raises(InvalidData, match="'docs'"):
        DatasetService.create(ALICE, " docs ")
    assert DatasetService.create(CHARLIE, "docs").id != dataset.id


def test_ensure_makes_a_dataset_once(dataset: Dataset) -> None:
    assert DatasetService.ensure(ALICE, "docs").id == dataset.id
    made = DatasetService.ensure(ALICE, "more")
    assert DatasetService.ensure(ALICE, "more").id == made.id
    assert [row.name for row in DatasetService.list(ALICE)] == ["docs", "more"]


@pytest.mark.parametrize("name", ["", " \x00", "x" * 256])
def test_refuses_a_name_that_the_column_cannot_hold(dataset: Dataset, name: str) -> None:
    for call in (
        lambda: DatasetService.create(ALICE, name), lambda: DatasetService.ensure(ALICE, name),
        lambda: add_text(ALICE, dataset.id, name, "text"),
    ):
        with pytest.raises(InvalidArgument, match="1 to 255"):
            call()


def test_a_text_is_there_with_its_passages(dataset: Dataset) -> None:
    assert add_text(ALICE, dataset.id, "a.txt", LONG, "/srv/a.txt")
    (document,) = DocumentService.all(ALICE, dataset.id)
    assert (document.name, document.location, document.run, document.progress) == ("a.txt", "/srv/a.txt", "DONE", 1)
    assert document.size == len(LONG)
    with connection():
        rows = list(DatasetChunk.select().order_by(DatasetChunk.chunk_index))
    assert [row.chunk_index for row in rows] == list(range(20))
    assert rows[7].content.startswith("Paragraph 7.")
    assert counts(dataset) == (1, 20)


def test_more_passages_than_one_insert_takes(dataset: Dataset) -> None:
    add_text(ALICE, dataset.id, "a.txt", LONG * 25)
    assert counts(dataset)[1] > 400


def test_the_same_text_again_changes_nothing(dataset: Dataset) -> None:
    add_text(ALICE, dataset.id, "a.txt", LONG)
    before = DatasetService.get_by_id(ALICE, dataset.id).__data__
    assert not add_text(ALICE, dataset.id, "a.txt", LONG)
    assert DatasetService.get_by_id(ALICE, dataset.id).__data__ == before


def test_another_text_replaces_the_one_of_its_name(dataset: Dataset) -> None:
    add_text(ALICE, dataset.id, "a.txt", LONG)
    add_text(ALICE, dataset.id, "b.txt", "The same words.")
    (before, _) = DocumentService.all(ALICE, dataset.id)
    assert add_text(ALICE, dataset.id, "a.txt", "Only a zebra.")
    (after, _) = DocumentService.all(ALICE, dataset.id)
    assert (after.id, after.digest == before.digest) == (before.id, False)
    assert counts(dataset) == (2, 2)
    search = LexicalRetriever("acme", [dataset.id]).retrieve
    assert (len(search("zebra", 5)), search("paragraph", 5)) == (1, [])


def test_a_text_is_cleaned_on_its_way_in(dataset: Dataset) -> None:
    assert add_text(ALICE, dataset.id, "a\x00.txt", "nul \x00 half \ud800 end")
    assert not add_text(ALICE, dataset.id, "a.txt", "nul  half \ufffd end")
    with connection():
        assert DatasetChunk.get().content == "nul  half \ufffd end"


def test_an_empty_text_is_a_document_without_passages(dataset: Dataset) -> None:
    assert add_text(ALICE, dataset.id, "a.md", " \n")
    assert counts(dataset) == (1, 0)


def test_a_document_goes_with_its_passages(dataset: Dataset) -> None:
    for name in ("a.txt", "b.txt"):
        add_text(ALICE, dataset.id, name, f"{name} zebra")
    (first, _) = DocumentService.all(ALICE, dataset.id)
    DocumentService.delete(ALICE, dataset.id, [first.id])
    assert counts(dataset) == (1, 1)
    assert len(LexicalRetriever("acme", [dataset.id]).retrieve("zebra", 5)) == 1
    assert DocumentService.delete(ALICE, dataset.id, [first.id]) == set()


def test_a_dataset_goes_with_all_that_is_in_it(dataset: Dataset) -> None:
    add_text(ALICE, dataset.id, "a.txt", LONG)
    DatasetService.delete(ALICE, [dataset.id])
    with pytest.raises(NotFound):
        DatasetService.get_by_id(ALICE, dataset.id)
    with connection():
        assert (DatasetDocument.select().count(), DatasetChunk.select().count()) == (0, 0)


def test_a_stranger_sees_and_changes_nothing(dataset: Dataset) -> None:
    add_text(ALICE, dataset.id, "a.txt", LONG)
    (document,) = DocumentService.all(ALICE, dataset.id)
    assert DatasetService.list(CHARLIE) == ()
    assert DatasetService.delete(CHARLIE, [dataset.id]) == set()
    calls: list[Any] = [
        lambda id: DatasetService.get_by_id(CHARLIE, id),
        lambda id: DocumentService.all(CHARLIE, id), lambda id: add_text(CHARLIE, id, "x", "y"),
        lambda id: DocumentService.delete(CHARLIE, id, [document.id]),
    ]
    for call in calls:
        told = []
        for id in (dataset.id, "unknown"):
            with pytest.raises(NotFound) as refused:
                call(id)
            told.append(refused.value.message.replace(id, ""))
        assert told[0] == told[1]
    assert counts(dataset) == (1, 20)


def test_a_document_of_another_dataset_is_not_found(dataset: Dataset) -> None:
    other = DatasetService.create(ALICE, "other")
    add_text(ALICE, other.id, "a.txt", "text")
    (document,) = DocumentService.all(ALICE, other.id)
    assert DocumentService.delete(ALICE, dataset.id, [document.id]) == set()
    with pytest.raises(NotFound):
        DocumentService.get(ALICE, dataset.id, document.id)


def test_check_tells_the_unknown_from_the_empty(dataset: Dataset) -> None:
    foreign = DatasetService.create(CHARLIE, "theirs")
    add_text(CHARLIE, foreign.id, "a.txt", "text")
    for id in ("unknown", foreign.id, f"{dataset.id}\x00"):
        with pytest.raises(InvalidData, match=f"^You don't own the dataset {id}$"):
            DatasetService.check(ALICE, [id, dataset.id])
    with pytest.raises(InvalidData, match=f"^The dataset {dataset.id} doesn't own parsed file$"):
        DatasetService.check(ALICE, [dataset.id])
    add_text(ALICE, dataset.id, "a.txt", "text")
    DatasetService.check(ALICE, [dataset.id])
    DatasetService.check(ALICE, [])


@pytest.fixture
def refuses_repeats(dataset: Dataset) -> Iterator[None]:
    """A database in which no two passages may say the same."""
    schema = f"{database.obj.schema}." if database.obj.schema else ""
    with connection():
        change("CREATE UNIQUE INDEX dataset_chunk_once ON {dataset_chunk} (content)")
    yield
    with connection():
        change(f"DROP INDEX {schema}dataset_chunk_once")


def test_a_failure_in_the_middle_changes_nothing(dataset: Dataset, refuses_repeats: None) -> None:
    add_text(ALICE, dataset.id, "a.txt", "zebra")
    with pytest.raises(IntegrityError):
        add_text(ALICE, dataset.id, "a.txt", f"{LONG}\n\n{LONG}")
    assert counts(dataset) == (1, 1)
    assert len(LexicalRetriever("acme", [dataset.id]).retrieve("zebra", 5)) == 1


def test_a_name_is_given_once_however_many_add_it(dataset: Dataset) -> None:
    def add(number: int) -> None:
        add_text(ALICE, dataset.id, "a.txt", f"version {number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(dataset) == (1, 1)
