"""Passages as rows: what search finds. Each change of them changes both counters in the same commit."""

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from peewee import fn

from db.database import connection, dialect, transaction
from db.ids import new_id
from db.jsontext import clean, clean_text
from db.models import Dataset, DatasetChunk, DatasetDocument, now_ms, touched
from db.text_index import search_text
from db.vector_index import MOST_DIMENSIONS, delete_vectors, insert_vectors, unit
from services.dialog_service import Page
from services.errors import InvalidArgument, InvalidData, NotFound
from services.knowledge.datasets import lock_dataset
from services.knowledge.documents import DocumentService
from services.knowledge.parsing import Passage
from services.principal import Principal, owned_by
from services.rag.embeddings import EmbeddingModel
from services.rag.model_failures import too_long
from services.rag.quotes import FENCE
from services.rag.text_batches import SHORTEST

_BATCH = 200  # chunks an INSERT
_EMBEDDED = 64  # chunks whose vectors are asked for at once
_TOO_LONG = (
    f"The embedding model refuses a passage of the document as too long, even its first {SHORTEST} characters: "
    "another model reads more."
)
_CODE = re.compile(FENCE.pattern + r"\n?", FENCE.flags)
LENGTH = 20_000  # characters of a chunk that are searched: no index and no model takes any number


def text_to_embed(heading: str, content: str) -> str:
    """What a chunk's vector is made of: its text below the nearest title; the titles above it say less.

    Code goes last: many models read the first 256 tokens only, which a screen of code uses up.
    """
    blocks = [block[0] for block in _CODE.finditer(content)]
    text = "\n\n".join([_CODE.sub("", content).strip(), *blocks])
    return f"{heading.rpartition(' > ')[2]}\n{text}" if heading else text


class ChunkService:
    """The passages of one document at a time. Every method takes the principal first; raises NotFound."""

    @classmethod
    def get_list(
        cls, principal: Principal, dataset_id: str, document_id: str, page: int = 1, page_size: int = 30,
        *, id: str = "", keywords: str = "",
    ) -> Page:
        """One page of a document's passages in their order; `keywords` stand in the text."""
        document = DocumentService.get(principal, dataset_id, document_id)
        query = DatasetChunk.select().where(
            owned_by(principal, DatasetChunk), DatasetChunk.document_id == document.id
        )
        if id:
            query = query.where(DatasetChunk.id == id)
        if keywords:
            query = query.where(getattr(fn, dialect().find)(fn.lower(DatasetChunk.content), keywords.lower()) > 0)
        with connection():
            rows = list(query.order_by(DatasetChunk.chunk_index, DatasetChunk.id).paginate(page, page_size))
            return Page(rows, query.count())

    @classmethod
    def add(
        cls, principal: Principal, dataset_id: str, document_id: str, content: str,
        important_keywords: Sequence[str] = (), questions: Sequence[str] = (),
        embedding: EmbeddingModel | None = None,
    ) -> DatasetChunk:
        """A passage written by hand, at its document's end. Raises InvalidArgument, ModelFailure."""
        content = _sound_content(content)
        more = {"important_keywords": clean(list(important_keywords)), "questions": clean(list(questions))}
        vectors = embedded([Passage(content)], embedding) if embedding else None
        with connection(), transaction():
            lock_dataset(principal, dataset_id)
            document = DocumentService.get(principal, dataset_id, document_id)
            _check_length(DatasetChunk(content=content, **more))
            last = DatasetChunk.select(fn.max(DatasetChunk.chunk_index)).where(
                owned_by(principal, DatasetChunk), DatasetChunk.document_id == document.id
            ).scalar()
            (id,) = insert_chunks(document, [Passage(content)], first=0 if last is None else last + 1, **more)
            _keep_vectors(document, [id], vectors)
            count(document, 1)
            made: DatasetChunk = DatasetChunk.get_by_id(id)
        return made

    @classmethod
    def update(
        cls, principal: Principal, dataset_id: str, document_id: str, chunk_id: str, fields: Mapping[str, Any],
        embedding: EmbeddingModel | None = None,
    ) -> DatasetChunk:
        """Change a passage's content, keywords, questions or availability."""
        columns = clean(dict(fields))
        if "content" in columns:
            columns["content"] = _sound_content(columns["content"])
        vectors = embedded([Passage(columns["content"])], embedding) if embedding and "content" in columns else None
        with connection(), transaction():
            lock_dataset(principal, dataset_id)
            document = DocumentService.get(principal, dataset_id, document_id)
            found = cls._own(principal, document).where(DatasetChunk.id == clean_text(chunk_id)).first()
            if found is None:
                raise NotFound(f"the document {document.id} has no chunk {chunk_id!r}")
            for name, value in columns.items():
                setattr(found, name, value)
            _check_length(found)
            DatasetChunk.update(columns | {"search_text": search_text(_searched(found))}).where(
                owned_by(principal, DatasetChunk), DatasetChunk.id == found.id
            ).execute()
            if vectors:
                delete_vectors([found.id])
                _keep_vectors(document, [found.id], vectors)
        return found  # type: ignore[no-any-return]

    @classmethod
    def delete(cls, principal: Principal, dataset_id: str, document_id: str, ids: Sequence[str] | None) -> set[str]:
        """Take passages out of a document, all where `ids` is None; those that were there."""
        with connection(), transaction():
            lock_dataset(principal, dataset_id)
            document = DocumentService.get(principal, dataset_id, document_id)
            query = cls._own(principal, document)
            if ids is not None:
                query = query.where(DatasetChunk.id.in_([clean_text(id) for id in ids]))
            found = {row.id for row in query}
            DatasetChunk.delete().where(  # type: ignore[misc]
                owned_by(principal, DatasetChunk), DatasetChunk.id.in_(list(found))
            ).execute()
            count(document, -len(found))
        return found

    @classmethod
    def _own(cls, principal: Principal, document: DatasetDocument) -> Any:
        return DatasetChunk.select().where(
            owned_by(principal, DatasetChunk), DatasetChunk.document_id == document.id
        )


def embedded(passages: Sequence[Passage], embedding: EmbeddingModel, told: Any = None) -> list[bytes]:
    """A vector for each passage; `told` is called with how many there are so far. Raises ModelFailure."""
    vectors: list[bytes] = []
    for begin in range(0, len(passages), _EMBEDDED):
        batch = passages[begin : begin + _EMBEDDED]
        texts = [text_to_embed(passage.heading, passage.content) for passage in batch]
        with too_long(_TOO_LONG):
            vectors += map(unit, embedding.embed(texts))
        if told:
            told(len(vectors))
    return vectors


def words_of(passages: Sequence[Passage]) -> list[str]:
    """What the index reads of each passage. Of a long document that takes seconds, in which nobody should wait."""
    return [search_text(f"{passage.heading}\n{passage.content}") for passage in passages]


def replace_chunks(
    document: DatasetDocument, passages: Sequence[Passage], words: Sequence[str],
    vectors: Sequence[bytes] | None = None,
) -> None:
    """Put these passages in the place of a document's own, inside a transaction that holds the dataset's row."""
    owner = Principal(document.tenant_id)
    document = DatasetDocument.get_by_id(document.id)  # it may have been switched off while it was parsed
    gone = DatasetChunk.delete().where(  # type: ignore[misc]
        owned_by(owner, DatasetChunk), DatasetChunk.document_id == document.id
    ).execute()
    _keep_vectors(document, insert_chunks(document, passages, words), vectors)
    count(document, len(passages) - gone)


def insert_chunks(
    document: DatasetDocument, passages: Sequence[Passage], words: Sequence[str] = (), first: int = 0, **more: Any
) -> list[str]:
    """Rows for these passages, numbered from `first`; their ids."""
    ids = [new_id() for _ in passages]
    rows = [
        {
            "id": id, "tenant_id": document.tenant_id, "dataset_id": document.dataset_id,
            "document_id": document.id, "chunk_index": index, "content": passage.content,
            "heading": passage.heading, "page": passage.page, "positions": passage.positions,
            "available": document.enabled, "create_time": now_ms(),
        } | more
        for index, (id, passage) in enumerate(zip(ids, passages, strict=True), first)
    ]
    for row, text in zip_longest(rows, words):
        row["search_text"] = text or search_text(_searched(DatasetChunk(**row)))
    for begin in range(0, len(rows), _BATCH):
        DatasetChunk.insert_many(rows[begin : begin + _BATCH]).execute()
    return ids


def count(document: DatasetDocument, chunks: int, documents: int = 0) -> None:
    """Change the counters of a document and its dataset."""
    owner = Principal(document.tenant_id)
    DatasetDocument.update(chunk_count=DatasetDocument.chunk_count + chunks, **touched()).where(
        owned_by(owner, DatasetDocument), DatasetDocument.id == document.id
    ).execute()
    Dataset.update(
        document_count=Dataset.document_count + documents, chunk_count=Dataset.chunk_count + chunks,
    ).where(owned_by(owner, Dataset), Dataset.id == document.dataset_id).execute()


def _searched(chunk: DatasetChunk) -> str:
    return "\n".join([chunk.heading, chunk.content, *chunk.important_keywords, *chunk.questions])


def _check_length(chunk: DatasetChunk) -> None:
    """Raises InvalidArgument."""
    length = len(_searched(chunk))
    if length > LENGTH:
        raise InvalidArgument(
            f"a chunk's content, keywords and questions have at most {LENGTH:,} characters together, not {length:,}"
        )


def _keep_vectors(document: DatasetDocument, ids: Sequence[str], vectors: Sequence[bytes] | None) -> None:
    """Vectors of one dataset have one dimension, that of the first. Raises InvalidData."""
    if not vectors:
        return
    dimensions = len(vectors[0]) // 4
    if dimensions > MOST_DIMENSIONS:
        raise InvalidData(f"the embedding model answers with {dimensions} dimensions; {MOST_DIMENSIONS} can be kept")
    held = Dataset.get_by_id(document.dataset_id)
    if held.dimensions not in (0, dimensions):
        raise InvalidData(
            f"the embedding model answers with {dimensions} dimensions, the dataset's vectors have "
            f"{held.dimensions}; use the model that made them, or a new dataset"
        )
    if not held.dimensions:
        Dataset.update(dimensions=dimensions).where(
            owned_by(Principal(document.tenant_id), Dataset), Dataset.id == held.id
        ).execute()
    insert_vectors(document.dataset_id, list(zip(ids, vectors, strict=True)))


def _sound_content(content: str) -> str:
    content = clean_text(content)
    if not content.strip():
        raise InvalidArgument("a chunk's `content` must not be empty")
    return content
