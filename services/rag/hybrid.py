"""Retrievers that know more than words: by vectors, by both, and with a second model's judgement."""

from dataclasses import dataclass, replace

from db.database import connection
from db.vector_index import dimensions, nearest, similarities, unit
from services.errors import ModelFailure
from services.events import ErrorCode
from services.rag.embeddings import EmbeddingModel
from services.rag.model_failures import too_long
from services.rag.reranking import RerankModel
from services.rag.retrievers import Document, Hit, LexicalRetriever, Retriever, documents


@dataclass(frozen=True, slots=True)
class HybridRetriever:
    """Words and vectors together: `similarity = weight * vector + (1 - weight) * term`, as RAGFlow weighs them.

    `term` is the cube of how much of the question is covered: a passage with a third of its words is a chance
    hit where others mean what was asked, one with all of them is not.
    """

    lexical: LexicalRetriever
    embedding: EmbeddingModel
    weight: float = 0.3

    def retrieve(self, question: str, limit: int) -> list[Document]:
        if not question.strip() or self.lexical.scope.is_empty():
            return []
        with too_long("The question is longer than the embedding model can read."):
            vector = unit(*self.embedding.embed([question]))
        with connection():
            self._check(len(vector) // 4)
            hits = [hit for hit in self._rank(question, vector) if hit.similarity >= self.lexical.similarity_threshold]
            return documents(self.lexical.tenant_id, hits[: max(limit, 0)])

    def _check(self, found: int) -> None:
        """Raises ModelFailure where the question's vector can be compared with none of the datasets' own."""
        held = dimensions(self.lexical.tenant_id, self.lexical.dataset_ids)
        if held and found not in held:
            raise ModelFailure(
                ErrorCode.INVALID_RESPONSE,
                f"The embedding model answers with {found} dimensions, the dataset's vectors have {min(held)}: "
                "it isn't the model that made them.",
            )

    def _rank(self, question: str, vector: bytes) -> list[Hit]:
        near = nearest(self.lexical.scope, vector, self.lexical.top_k)
        hits = self.lexical.rank(question, near)
        others = [hit.id for hit in hits if hit.id not in near]
        near |= similarities(self.lexical.tenant_id, others, vector)
        joined = [self._joined(hit, max(near.get(hit.id, 0.0), 0.0)) for hit in hits]
        return sorted(joined, key=lambda hit: (-hit.similarity, -hit.score, hit.document_id, hit.chunk_index))

    def _joined(self, hit: Hit, vector_similarity: float) -> Hit:
        term = round(hit.term_similarity**3, 6)
        similarity = round(self.weight * vector_similarity + (1 - self.weight) * term, 6)
        return replace(hit, similarity=similarity, term_similarity=term, vector_similarity=vector_similarity)


def VectorRetriever(lexical: LexicalRetriever, embedding: EmbeddingModel) -> HybridRetriever:
    """Vectors alone, over the same passages as `lexical`."""
    return HybridRetriever(lexical, embedding, weight=1.0)


@dataclass(frozen=True, slots=True)
class RerankingRetriever:
    """The passages of another retriever in the order of a rerank model, whose score is their similarity.

    The model sees `candidates` passages, or as many as are asked for.
    """

    inner: Retriever
    reranker: RerankModel
    similarity_threshold: float = 0.0
    candidates: int = 64

    def retrieve(self, question: str, limit: int) -> list[Document]:
        found = self.inner.retrieve(question, max(limit, self.candidates)) if limit > 0 else []
        if not found:
            return []
        with too_long("The question and a passage are together longer than the rerank model can read."):
            scores = self.reranker.scores(question, [document.text for document in found])
        judged = [
            replace(document, metadata=document.metadata | {"similarity": round(score, 6)})
            for document, score in zip(found, scores, strict=True)
        ]
        best = sorted(judged, key=lambda document: -document.metadata["similarity"])
        return [document for document in best if document.metadata["similarity"] >= self.similarity_threshold][:limit]
