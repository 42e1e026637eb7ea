"""What a chat or a retrieval request asks for, as a retriever."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from db.vector_index import is_available
from services.errors import InvalidData
from services.knowledge.datasets import DatasetService
from services.knowledge.metadata import Filter, matching
from services.principal import Principal
from services.rag.embeddings import EmbeddingModel
from services.rag.hybrid import HybridRetriever, RerankingRetriever
from services.rag.reranking import RerankModel
from services.rag.retrievers import LexicalRetriever, Retriever


class Models(Protocol):
    """The operator's models that retrieval asks, by name or id."""

    def find_embedding(self, embedding_id: str) -> EmbeddingModel | None: ...

    def find_rerank(self, rerank_id: str) -> RerankModel | None: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which passages: `similarity = weight * vector + (1 - weight) * term`, from 0 to 1, at least the threshold.

    `document_ids` None is every document; every filter has to hold.
    """

    dataset_ids: Sequence[str]
    top_k: int = 1024
    similarity_threshold: float = 0.2
    vector_similarity_weight: float = 0.3
    rerank_id: str = ""
    document_ids: Sequence[str] | None = None
    filters: Sequence[Filter] = ()


def retriever(principal: Principal, wanted: Wanted, models: Models) -> Retriever:
    """Words, vectors where all datasets have them, a rerank model where one is named. Raises InvalidData."""
    documents = wanted.document_ids
    if wanted.filters:
        passing = matching(principal, wanted.dataset_ids, wanted.filters)
        documents = passing if documents is None else [id for id in documents if id in set(passing)]
    threshold = 0.0 if wanted.rerank_id else wanted.similarity_threshold
    lexical = LexicalRetriever(principal.tenant_id, wanted.dataset_ids, wanted.top_k, threshold, documents)
    embedding = embedding_of(principal, wanted.dataset_ids, models) if wanted.vector_similarity_weight > 0 else None
    found: Retriever = lexical
    if embedding is not None:
        found = HybridRetriever(lexical, embedding, min(wanted.vector_similarity_weight, 1.0))
    if not wanted.rerank_id:
        return found
    reranker = models.find_rerank(wanted.rerank_id)
    if reranker is None:
        raise InvalidData(f"`rerank_id` {wanted.rerank_id} doesn't exist")
    return RerankingRetriever(found, reranker, wanted.similarity_threshold)


def embedding_of(principal: Principal, dataset_ids: Sequence[str], models: Models) -> EmbeddingModel | None:
    """The model that all these datasets' vectors were made with; None where words alone can be compared."""
    if lack_of_vectors(principal, dataset_ids, models):
        return None
    return models.find_embedding(_names(principal, dataset_ids)[0])


def lack_of_vectors(principal: Principal, dataset_ids: Sequence[str], models: Models) -> str | None:
    """Why these datasets can't be searched by vectors, or None where they can."""
    names = _names(principal, dataset_ids)
    if not names or "" in names:
        return "a dataset has no embedding model"
    if len(names) > 1:
        return "the datasets have different embedding models"
    if models.find_embedding(names[0]) is None:
        return f"the embedding model {names[0]!r} isn't set up"
    return None if is_available() else "neither numpy nor pgvector is there"


def _names(principal: Principal, dataset_ids: Sequence[str]) -> list[str]:
    found = DatasetService.existing(principal, dataset_ids)
    return sorted({dataset.embedding_model for dataset in found})
