"""From a question to passages. A retriever sees the question only, never the history.

The engine's full-text index proposes, the score here decides, so that both engines give the same hits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from db.database import connection
from db.legacy import format_chunk
from db.text_index import FoundChunk, count_chunks, find_chunks, search_words

# BM25's usual constants: how soon a repeated word stops counting, how much a long passage pays.
_SATURATION, _LENGTH = 1.2, 0.75

STOP_WORDS = frozenset(search_words("""
    a about am an and any are as at be been being but by can could did do does for from had has have he her
    him his how i if in into is it its may me might must my no not of on or our ours please shall she should
    so some such than that the their them then there these they this those to us was we were what when where
    which who whom whose why will with would you your yours s t don doesn isn aren ll ve re

    aber als am an auch auf aus bei bin bis bitte da dann das dass dein dem den denn der des dich die dies
    diese diesem diesen dieser dieses dir doch du durch ein eine einem einen einer eines er es euch euer für
    gibt habe haben hatte ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja kann kannst können
    man mein meine mich mir mit muss nach nein nicht noch nur ob oder ohne sein seine sich sie sind so soll
    sollen über um und uns unser unter vom von vor wann warum was weil welche welchem welchen welcher welches
    wem wen wenn wer werden wie wieso wird wir wo wofür woher womit zu zum zur
"""))


@dataclass(frozen=True, slots=True)
class Document:
    """A retrieved passage. `metadata` says where it stands and how near it is to the question."""

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    chunk_index: int = 0

    def page_url(self) -> str | None:
        """The web address of the page that holds it; each page of a PDF has its own."""
        url, page = self.metadata.get("url"), self.metadata.get("page")
        return f"{url}#page={page}" if url and page is not None else url


class Retriever(Protocol):
    def retrieve(self, question: str, limit: int) -> list[Document]:
        """The best passages for a question, best first."""
        ...


@dataclass(frozen=True, slots=True)
class LexicalRetriever:
    """Passages of a tenant's datasets that share words with the question, by BM25.

    `similarity`, from 0 to 1, is how much of the question is covered, rare words counting more.
    """

    tenant_id: str
    dataset_ids: Sequence[str]
    top_k: int = 1024
    similarity_threshold: float = 0.0
    document_ids: Sequence[str] | None = None

    def retrieve(self, question: str, limit: int) -> list[Document]:
        words = question_words(question)
        with connection():
            chunks = find_chunks(self.tenant_id, self.dataset_ids, words, self.top_k, self.document_ids)
            total = count_chunks(self.tenant_id, self.dataset_ids)
        ranked = (hit for hit in rank(words, chunks, total) if hit.similarity >= self.similarity_threshold)
        return [hit.document() for hit in ranked][: max(limit, 0)]


def question_words(question: str) -> list[str]:
    """The distinct words to search for: stop words (English and German) only where nothing else is said."""
    words = list(dict.fromkeys(search_words(question)))
    return [word for word in words if word not in STOP_WORDS] or words


@dataclass(frozen=True, slots=True)
class Hit:
    chunk: FoundChunk
    score: float
    similarity: float

    def document(self) -> Document:
        chunk = self.chunk
        metadata = {
            "document_id": chunk.document_id, "document_name": chunk.document_name,
            "dataset_id": chunk.dataset_id, "heading": chunk.heading, "page": chunk.page,
            "similarity": self.similarity, "term_similarity": self.similarity,
        }
        if chunk.location and chunk.location.startswith(("https://", "http://")):
            metadata["url"] = chunk.location
        return Document(chunk.id, chunk.content, metadata, chunk.chunk_index)


def rank(words: Sequence[str], chunks: Sequence[FoundChunk], total: int) -> list[Hit]:
    """The chunks that have one of the words, best first; equals in the order of their documents.

    `total` is the number of chunks that were searched.
    """
    counts = [Counter(chunk.search_text.split()) for chunk in chunks]
    weights = {word: _weight(sum(word in count for count in counts), total) for word in words}
    whole = sum(weights.values())
    average = sum(count.total() for count in counts) / max(len(counts), 1)
    hits = []
    for chunk, count in zip(chunks, counts, strict=True):
        covered = sum(weight for word, weight in weights.items() if word in count)
        if covered:
            hits.append(Hit(chunk, _score(weights, count, average), round(covered / whole, 6)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.document_id, hit.chunk.chunk_index))


def _weight(holders: int, total: int) -> float:
    """A word's inverse document frequency, never negative."""
    return math.log(1 + (max(total - holders, 0) + 0.5) / (holders + 0.5))


def _score(weights: dict[str, float], count: Counter[str], average: float) -> float:
    damping = _SATURATION * (1 - _LENGTH + _LENGTH * count.total() / average)
    found = (weight * count[word] / (count[word] + damping) for word, weight in weights.items())
    return round(sum(found), 9)


def wire_chunk(document: Document) -> dict[str, Any]:
    """A passage as clients and slots know it: 14 keys, null where unknown."""
    return format_chunk(document.metadata | {"id": document.id, "content": document.text})


def doc_aggs(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many of these wire chunks each document has, most first."""
    counts = Counter((chunk["document_id"], chunk["document_name"]) for chunk in chunks)
    return [{"doc_name": name, "doc_id": id, "count": count} for (id, name), count in counts.most_common()]
