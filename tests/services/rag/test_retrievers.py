"""The lexical retriever: the same hits on both engines, rare words first, and nothing of another tenant."""

import time

import pytest

from conf.settings import Settings
from db.database import database
from db.text_index import MAX_WORDS, ChunkText, search_text
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.rag.retrievers import Document, LexicalRetriever, doc_aggs, question_words, ranked, wire_chunk

ACME, STRANGER = Principal("acme"), Principal("stranger")
GUIDE = """# Guide

Chatkeep keeps every turn.

## Install

Run the installer, then start the server.

## Backup

Copy the file while the server runs. A backup of PostgreSQL is a dump.
"""


@pytest.fixture
def dataset(store: Settings) -> str:
    made = DatasetService.create(ACME, "docs")
    add_text(ACME, made.id, "guide.md", GUIDE, "https://docs.example/guide")
    add_text(ACME, made.id, "notes.txt", "The server was moved.\n\nLunch is at noon.")
    return made.id


def test_finds_the_passage_that_answers(dataset: str) -> None:
    best, *_ = LexicalRetriever("acme", [dataset]).retrieve("How do I make a backup of the server?", 5)
    assert "Copy the file" in best.text
    assert best.metadata["heading"] == "Guide > Backup"
    assert best.metadata["document_name"] == "guide.md"
    assert best.page_url() == "https://docs.example/guide"
    assert 0 < best.metadata["similarity"] <= 1


def test_finds_a_passage_by_its_heading(dataset: str) -> None:
    found = LexicalRetriever("acme", [dataset]).retrieve("install", 5)
    assert [document.metadata["heading"] for document in found] == ["Guide > Install"]


@pytest.mark.parametrize(("question", "passage"), [
    ("Can I bring my goat?", "Goats travel on the lower deck."), ("goats", "A goat travels on the lower deck."),
    ("Was it cancelled?", "To cancel a passage, call us."), ("Darf ich meine Ziege mitbringen?", "Ziegen sind unten."),
])
def test_finds_another_form_of_a_word_that_no_passage_has(store: Settings, question: str, passage: str) -> None:
    made = DatasetService.create(ACME, "ferry")
    add_text(ACME, made.id, "ferry.md", f"{passage}\n\n# Lunch\n\nLunch is served on the upper deck.")
    found = LexicalRetriever("acme", [made.id]).retrieve(question, 5)
    assert [passage in document.text for document in found] == [True]


def test_a_word_that_is_there_is_looked_for_as_it_stands(dataset: str) -> None:
    add_text(ACME, dataset, "dumps.md", "Dumps are large.")
    found = LexicalRetriever("acme", [dataset]).retrieve("dump", 5)
    assert [document.metadata["document_name"] for document in found] == ["guide.md"]


def test_a_word_counts_more_than_another_form_of_it() -> None:
    hits = ranked({"dumps": 1.0}, [chunk("a", "a dump"), chunk("b", "the dumps"), chunk("c", "dumplings")])
    assert [(hit.document_id, hit.similarity) for hit in hits] == [("b", 1), ("a", 1), ("c", 0)]


def test_keeps_limit_threshold_and_documents(dataset: str) -> None:
    question = "server backup"
    found = LexicalRetriever("acme", [dataset]).retrieve(question, 9)
    assert len(found) == 3
    assert LexicalRetriever("acme", [dataset]).retrieve(question, 1) == found[:1]
    assert LexicalRetriever("acme", [dataset]).retrieve(question, 0) == []
    assert LexicalRetriever("acme", [dataset], similarity_threshold=0.9).retrieve(question, 9) == found[:1]
    guide = [found[0].metadata["document_id"]]
    assert LexicalRetriever("acme", [dataset], document_ids=guide).retrieve("moved", 9) == []


def test_finds_nothing_of_another_tenant(dataset: str) -> None:
    assert LexicalRetriever("stranger", [dataset]).retrieve("server", 5) == []
    foreign = DatasetService.create(STRANGER, "theirs")
    add_text(STRANGER, foreign.id, "a.txt", "server secrets")
    found = LexicalRetriever("acme", [dataset, foreign.id]).retrieve("server secrets", 9)
    assert {document.metadata["dataset_id"] for document in found} == {dataset}


def test_finds_nothing_without_datasets_or_words(dataset: str) -> None:
    assert LexicalRetriever("acme", []).retrieve("server", 5) == []
    assert LexicalRetriever("acme", [dataset]).retrieve("\x00 ?", 5) == []


def test_holds_no_connection_afterwards(dataset: str) -> None:
    LexicalRetriever("acme", [dataset]).retrieve("server", 5)
    assert database.obj.is_closed()


def chunk(name: str, text: str, index: int = 0) -> ChunkText:
    return ChunkText(f"{name}{index}", name, index, search_text(text))


def test_ranks_the_rarer_word_first_and_equals_by_their_place() -> None:
    chunks = [chunk("c", "red"), chunk("b", "red", 1), chunk("b", "red"), chunk("a", "blue")]
    hits = ranked({"red": 0.5, "blue": 1.0}, chunks)
    assert [hit.id for hit in hits] == ["a0", "b0", "b1", "c0"]
    assert ranked({"red": 0.5, "blue": 1.0}, chunks[::-1]) == hits


def test_counts_a_word_whatever_stands_beside_it() -> None:
    once, thrice, none = (ranked({"ab": 1.0}, [chunk("a", text), chunk("b", "x")])[0] for text in
                          ("ab x x", "ab ab ab", "abc xab x"))
    assert thrice.score > once.score > 0
    assert none.score == 0


def test_says_how_much_of_the_question_a_passage_covers() -> None:
    whole, part = ranked({"red": 1.0, "blue": 2.0}, [chunk("a", "red and blue"), chunk("b", "red")])
    assert (whole.similarity, round(part.similarity, 3)) == (1, 0.333)


def test_reads_no_more_words_of_a_question_than_are_searched(dataset: str) -> None:
    question = "server backup " + " ".join(f"x{n}" for n in range(30_000))
    assert len(question_words(question)) == MAX_WORDS
    began = time.monotonic()
    assert LexicalRetriever("acme", [dataset]).retrieve(question, 5)[0].metadata["similarity"] > 0.01
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(("question", "words"), [
    ("What is a backup?", ["backup"]),
    ("Wie mache ich über Nacht ein Backup für den Server?", ["mache", "nacht", "backup", "server"]),
    ("What is it?", ["what", "is", "it"]),
    ("Backup backup", ["backup"]),
])
def test_drops_stop_words_where_others_remain(question: str, words: list[str]) -> None:
    assert question_words(question) == words


def test_a_wire_chunk_has_the_same_14_keys_whatever_is_known() -> None:
    bare = wire_chunk(Document("i", "text"))
    full = wire_chunk(Document("i", "text", {"document_id": "d", "heading": "A", "page": 1, "similarity": 0.5}))
    assert list(bare) == list(full)
    assert len(bare) == 14
    assert (bare["similarity"], full["similarity"], full["document_id"]) == (None, 0.5, "d")
    assert (full["id"], full["content"]) == ("i", "text")


def test_counts_passages_by_document_most_first() -> None:
    chunks = [wire_chunk(Document("", "", {"document_id": id, "document_name": id * 2})) for id in "abb"]
    assert doc_aggs(chunks) == [
        {"doc_name": "bb", "doc_id": "b", "count": 2}, {"doc_name": "aa", "doc_id": "a", "count": 1},
    ]
