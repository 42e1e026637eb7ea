"""Vectors and words together, with vectors that the test writes: the same hits on both engines."""

import math
from array import array
from collections.abc import Sequence

import pytest

from conf.settings import Settings
from db.database import connection
from db.vector_index import nearest, unit, vector_type
from services.errors import InvalidData, ModelFailure
from services.events import ErrorCode
from services.knowledge.chunks import ChunkService
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.rag.hybrid import HybridRetriever, RerankingRetriever, VectorRetriever
from services.rag.model_failures import failure
from services.rag.retrievers import Document, LexicalRetriever

ACME = Principal("acme")
ANIMALS = ("dog", "puppy", "cat", "kitten", "car")
DIRECTIONS = {"dog": (1, 0, 0), "puppy": (0.9, 0.1, 0), "cat": (0, 1, 0), "kitten": (0, 0.9, 0.1), "car": (0, 0, 1)}


class Meaning:
    """An embedding model that knows five words; a text means the sum of them."""

    name = "meaning"

    def embed(self, texts: Sequence[str]) -> list["array[float]"]:
        return [array("f", [sum(DIRECTIONS[word][axis] for word in ANIMALS if word in text) for axis in range(3)])
                for text in texts]


@pytest.fixture
def lexical(store: Settings) -> LexicalRetriever:
    dataset = DatasetService.create(ACME, "animals", embedding_model="meaning")
    for word in ANIMALS:
        add_text(ACME, dataset.id, f"{word}.txt", f"All about the {word}.", embedding=Meaning())
    return LexicalRetriever("acme", [dataset.id])


def names(found: list[Document]) -> list[str]:
    return [document.metadata["document_name"].removesuffix(".txt") for document in found]


def test_vectors_find_what_means_the_same(lexical: LexicalRetriever) -> None:
    assert names(VectorRetriever(lexical, Meaning()).retrieve("puppy", 2)) == ["puppy", "dog"]
    assert names(lexical.retrieve("puppy", 2)) == ["puppy"]


@pytest.mark.parametrize("weight", [0.1, 0.3, 0.8])
def test_similarity_is_weighed_as_ragflow_does(lexical: LexicalRetriever, weight: float) -> None:
    found = HybridRetriever(lexical, Meaning(), weight).retrieve("the kitten", 9)
    assert names(found)[:2] == ["kitten", "cat"]
    for document in found:
        told = document.metadata
        expected = weight * told["vector_similarity"] + (1 - weight) * told["term_similarity"]
        assert told["similarity"] == pytest.approx(expected, abs=1e-6)
        assert 0 <= told["similarity"] <= 1.000001
    assert [document.metadata["similarity"] for document in found] == sorted(
        (document.metadata["similarity"] for document in found), reverse=True
    )


def test_keeps_threshold_limit_documents_and_tenant(lexical: LexicalRetriever) -> None:
    found = HybridRetriever(lexical, Meaning(), 1.0).retrieve("dog", 9)
    assert len(found) == 5
    best = found[0].metadata
    near = LexicalRetriever("acme", lexical.dataset_ids, similarity_threshold=0.9)
    assert names(HybridRetriever(near, Meaning(), 1.0).retrieve("dog", 9)) == ["dog", "puppy"]
    one = LexicalRetriever("acme", lexical.dataset_ids, document_ids=[best["document_id"]])
    assert names(HybridRetriever(one, Meaning()).retrieve("cat", 9)) == ["dog"]
    stranger = LexicalRetriever("stranger", lexical.dataset_ids)
    assert HybridRetriever(stranger, Meaning()).retrieve("dog", 9) == []
    assert HybridRetriever(lexical, Meaning()).retrieve(" ", 9) == []


def test_a_passage_without_a_vector_is_found_by_its_words(lexical: LexicalRetriever) -> None:
    add_text(ACME, lexical.dataset_ids[0], "bird.txt", "All about the bird.")
    assert names(HybridRetriever(lexical, Meaning()).retrieve("bird", 1)) == ["bird"]


def test_a_vector_of_another_dimension_is_refused_with_a_sentence_and_changes_nothing(
    lexical: LexicalRetriever,
) -> None:
    class Wider(Meaning):
        def embed(self, texts: Sequence[str]) -> list["array[float]"]:
            return [array("f", [1, 0, 0, 0]) for _ in texts]

    with pytest.raises(InvalidData, match=r"4 dimensions.*have 3"):
        add_text(ACME, lexical.dataset_ids[0], "wide.txt", "wide", embedding=Wider())
    assert "wide.txt" not in [row.name for row in DocumentService.all(ACME, lexical.dataset_ids[0])]
    with connection():
        assert nearest(lexical.scope, unit(array("f", [1, 0, 0, 0])), 5) == {}


def test_a_question_whose_vector_cannot_be_compared_fails_with_a_sentence(lexical: LexicalRetriever) -> None:
    class Wider(Meaning):
        def embed(self, texts: Sequence[str]) -> list["array[float]"]:
            return [array("f", [1, 0, 0, 0]) for _ in texts]

    with pytest.raises(ModelFailure, match=r"4 dimensions.*have 3"):
        HybridRetriever(lexical, Wider()).retrieve("dog", 9)
    other = DatasetService.create(ACME, "wide", embedding_model="meaning")
    add_text(ACME, other.id, "dog.txt", "All about the dog.", embedding=Wider())
    both = LexicalRetriever("acme", [*lexical.dataset_ids, other.id])
    assert len(HybridRetriever(both, Wider()).retrieve("dog", 9)) == 2  # the others by their words


def test_a_vector_that_no_index_takes_is_refused_alike_on_both_engines(store: Settings) -> None:
    class Endless(Meaning):
        def embed(self, texts: Sequence[str]) -> list["array[float]"]:
            return [array("f", [1] * 16_001) for _ in texts]

    dataset = DatasetService.create(ACME, "endless", embedding_model="meaning")
    with pytest.raises(InvalidData, match=r"16001 dimensions; 16000 can be kept"):
        add_text(ACME, dataset.id, "a.txt", "dog", embedding=Endless())


def test_a_passage_that_changes_changes_its_vector(lexical: LexicalRetriever) -> None:
    dataset = lexical.dataset_ids[0]
    (car,) = [row for row in DocumentService.all(ACME, dataset) if row.name == "car.txt"]
    (chunk,) = ChunkService.get_list(ACME, dataset, car.id).rows
    ChunkService.update(ACME, dataset, car.id, chunk.id, {"content": "A dog."}, Meaning())
    assert names(VectorRetriever(lexical, Meaning()).retrieve("puppy", 3)) == ["puppy", "dog", "car"]


def test_postgres_compares_in_the_database_where_it_can(lexical: LexicalRetriever, engine: str) -> None:
    with connection():
        assert (vector_type() is not None) is (engine == "postgres")


def test_a_vector_has_length_one() -> None:
    assert math.hypot(*memoryview(unit(array("f", [3, 4]))).cast("f")) == pytest.approx(1)
    assert list(memoryview(unit(array("f", [0, 0]))).cast("f")) == [0, 0]


class Backwards:
    """A rerank model that likes what the retriever liked least."""

    name = "backwards"

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        return [number / len(texts) for number in range(len(texts))]


def test_a_rerank_model_orders_anew(lexical: LexicalRetriever) -> None:
    before = names(lexical.retrieve("all about", 9))
    found = RerankingRetriever(lexical, Backwards(), 0.3).retrieve("all about", 9)
    assert names(found) == before[:1:-1]
    assert found[0].metadata["similarity"] == 0.8
    assert names(RerankingRetriever(lexical, Backwards()).retrieve("all about", 1)) == before[-1:]
    assert RerankingRetriever(lexical, Backwards()).retrieve("unheard", 9) == []


def test_what_is_too_long_for_a_model_is_said_in_the_words_of_what_it_was_sent(lexical: LexicalRetriever) -> None:
    class Short(Meaning, Backwards):
        def embed(self, texts: Sequence[str]) -> list["array[float]"]:
            raise failure(ErrorCode.CONTEXT_TOO_LONG, "HTTP 413")

        def scores(self, question: str, texts: Sequence[str]) -> list[float]:
            raise failure(ErrorCode.CONTEXT_TOO_LONG, "HTTP 413")

    with pytest.raises(ModelFailure, match="The question is longer than the embedding model"):
        HybridRetriever(lexical, Short()).retrieve("dog", 9)
    with pytest.raises(ModelFailure, match="a passage are together longer than the rerank model"):
        RerankingRetriever(lexical, Short()).retrieve("dog", 9)
