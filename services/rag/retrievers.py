"""From a question to passages. A retriever sees the question only, never the history.

The engine's full-text index proposes, the score here decides, so that both engines give the same hits.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from db.database import connection
from db.jsontext import loads
from db.legacy import format_chunk
from db.text_index import (
    MAX_WORDS,
    ChunkText,
    Found,
    FoundChunk,
    Scope,
    count_chunks,
    load_chunks,
    load_texts,
    search,
    search_words,
)
from services.rag.likeness import forms, stem

# BM25's usual constants: how soon a repeated word stops counting, how much a long passage pays.
_SATURATION, _LENGTH = 1.2, 0.75
_OTHER_FORM = 0.5  # what `deleting` counts where `deleted` is asked for
_TITLE = 0.5  # what a passage gains whose title is what was asked; judged by the questions of the tests

_ENGLISH = frozenset(search_words("""
    a about am an and any are as at be been being but by can could did do does for from had has have he her
    him his how i if in into is it its may me might must my no not of on or our ours please shall she should
    so some such than that the their them then there these they this those to us was we were what when where
    which who whom whose why will with would you your yours s t don doesn isn aren ll ve re
"""))
_GERMAN = frozenset(search_words("""
    aber als am an auch auf aus bei bin bis bitte da dann das dass dein dem den denn der des dich die dies
    diese diesem diesen dieser dieses dir doch du durch ein eine einem einen einer eines er es euch euer für
    gibt habe haben hatte ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja kann kannst können
    man mein meine mich mir mit muss nach nein nicht noch nur ob oder ohne sein seine sich sie sind so soll
    sollen über um und uns unser unter vom von vor wann warum was weil welche welchem welchen welcher welches
    wem wen wenn wer werden wie wieso wird wir wo wofür woher womit zu zum zur
"""))
STOP_WORDS = _ENGLISH | _GERMAN


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
class Hit:
    """A passage that was found, and how near it is to the question: similarities from 0 to 1."""

    id: str
    document_id: str
    chunk_index: int
    score: float
    similarity: float
    term_similarity: float
    vector_similarity: float | None = None


@dataclass(frozen=True, slots=True)
class LexicalRetriever:
    """Passages of a tenant's datasets that share words with the question, by BM25; other forms of a word count in part.

    `similarity`, from 0 to 1, is how much of the question is covered, rare words counting more.
    """

    tenant_id: str
    dataset_ids: Sequence[str]
    top_k: int = 1024
    similarity_threshold: float = 0.0
    document_ids: Sequence[str] | None = None

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant_id, self.dataset_ids, self.document_ids)

    def retrieve(self, question: str, limit: int) -> list[Document]:
        with connection():
            hits = [hit for hit in self.rank(question) if hit.similarity >= self.similarity_threshold]
            return documents(self.tenant_id, hits[: max(limit, 0)])

    def rank(self, question: str, also: Iterable[str] = ()) -> list[Hit]:
        """The passages with a word of the question, and those of the ids `also`, best first; needs a connection."""
        words = question_words(question)
        found = self._search(words)
        ids = list(dict.fromkeys([*found.ids, *also]))
        weights = _weights(words, found.holders, count_chunks(self.tenant_id, self.dataset_ids))
        return ranked(weights, load_texts(self.tenant_id, ids))

    def _search(self, words: Sequence[str]) -> Found:
        """The passages with one of the words; a word that none has is looked for in its other forms."""
        found = search(self.scope, words, self.top_k)
        unknown = [word for word in words if not found.holders.get(word)]
        more = search(self.scope, unknown, self.top_k, forms)
        return Found(list(dict.fromkeys([*found.ids, *more.ids]))[: self.top_k], found.holders | more.holders)


def question_words(question: str) -> list[str]:
    """The first distinct words to search for, as many as an index takes: stop words (English and German) only
    where nothing else is said."""
    words = list(dict.fromkeys(search_words(question)))
    return ([word for word in words if word not in STOP_WORDS] or words)[:MAX_WORDS]


def is_german(words: Collection[str]) -> bool | None:
    """Whether words are German rather than English, by their stop words; None where those don't tell."""
    german, english = len(_GERMAN.intersection(words)), len(_ENGLISH.intersection(words))
    return None if german == english else german > english


def documents(tenant_id: str, hits: Sequence[Hit]) -> list[Document]:
    """The passages of these hits, in their order; needs a connection."""
    chunks = {chunk.id: chunk for chunk in load_chunks(tenant_id, [hit.id for hit in hits])}
    return [_document(chunks[hit.id], hit) for hit in hits if hit.id in chunks]


def _document(chunk: FoundChunk, hit: Hit) -> Document:
    metadata = {
        "document_id": chunk.document_id, "document_name": chunk.document_name,
        "dataset_id": chunk.dataset_id, "heading": chunk.heading, "page": chunk.page,
        "positions": loads(chunk.positions), "document_metadata": loads(chunk.meta_fields) or None,
        "similarity": hit.similarity,
        "term_similarity": hit.term_similarity, "vector_similarity": hit.vector_similarity,
    }
    if chunk.location and chunk.location.startswith(("https://", "http://")):
        metadata["url"] = chunk.location
    return Document(chunk.id, chunk.content, metadata, chunk.chunk_index)


def ranked(weights: Mapping[str, float], texts: Sequence[ChunkText]) -> list[Hit]:
    """Texts with their BM25 score for words of these weights, best first; equals in the order of their documents."""
    lengths = [text.words.count(" ") + 1 for text in texts]
    average = sum(lengths) / max(len(lengths), 1)
    wanted = [_Wanted(word, weight) for word, weight in weights.items()]
    by_form = {form: word for word in wanted for form in word.forms}
    whole = sum(weights.values()) or 1.0
    hits = []
    for text, length in zip(texts, lengths, strict=True):
        padded = f"  {text.words.replace(' ', '  ')}  "  # so that each word has spaces of its own around it
        damping = _SATURATION * (1 - _LENGTH + _LENGTH * length / average)
        score = covered = 0.0
        for word in wanted:
            if count := word.count_in(padded):
                score += word.weight * count / (count + damping)
                covered += word.weight
        score, share = round(score + _titled(by_form, text.heading), 9), round(covered / whole, 6)
        hits.append(Hit(text.id, text.document_id, text.chunk_index, score, share, share))
    return sorted(hits, key=lambda hit: (-hit.score, hit.document_id, hit.chunk_index))


class _Wanted:
    """A word that is looked for in many texts, each with two spaces between its words."""

    def __init__(self, word: str, weight: float) -> None:
        self.weight = weight
        self.forms = forms(word)
        self._exact, self._root = f" {word} ", f" {stem(word)}"
        self._others = [f" {form} " for form in self.forms[1:]]

    def count_in(self, text: str) -> float:
        """How often a text has it; another form of it counts in part."""
        alike = text.count(self._root)
        if not alike:  # mostly
            return 0
        exact = text.count(self._exact)
        return exact if exact == alike else exact + _OTHER_FORM * sum(map(text.count, self._others))


def _titled(by_form: Mapping[str, _Wanted], heading: str) -> float:
    """What a passage gains by its title: the part of it that the question names."""
    title = _title_words(heading)
    named = {by_form[word] for word in title if word in by_form}
    return _TITLE * sum(word.weight for word in named) / max(len(title), 1)


@lru_cache(maxsize=16_384)
def _title_words(heading: str) -> list[str]:
    return search_words(heading.rpartition(" > ")[2])


def _weights(words: Sequence[str], holders: Mapping[str, int], total: int) -> dict[str, float]:
    """Each word's inverse document frequency, never negative."""
    counts = {word: holders.get(word, 0) for word in words}
    return {word: math.log(1 + (max(total - count, 0) + 0.5) / (count + 0.5)) for word, count in counts.items()}


def wire_chunk(document: Document) -> dict[str, Any]:
    """A passage as clients and slots know it: 14 keys, null where unknown."""
    return format_chunk(document.metadata | {"id": document.id, "content": document.text})


def doc_aggs(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many of these wire chunks each document has, most first."""
    counts = Counter((chunk["document_id"], chunk["document_name"]) for chunk in chunks)
    return [{"doc_name": name, "doc_id": id, "count": count} for (id, name), count in counts.most_common()]
