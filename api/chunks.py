"""Passages of a document, and retrieval over datasets, over RAGFlow's API."""

from typing import Annotated, Any, NotRequired

from flask import Blueprint, Response, request
from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import VISIBLE, Flag, IdList, Paging, flag, ids_of, paging, read_object
from api.datasets import text_of
from api.described import EXAMPLE_IDS, described
from api.documents import _own_the_dataset, _take_dataset_id, dataset
from api.ignored import ignored, warned
from api.reports import Deleted, report
from api.responses import Advised, dumps, success
from db.models import DatasetChunk, DatasetDocument
from services.errors import InvalidArgument
from services.knowledge.chunks import ChunkService
from services.knowledge.documents import DocumentService
from services.rag.embeddings import EmbeddingModel

blueprint = Blueprint("chunks", __name__, url_prefix="/api/v1/datasets/<dataset_id>/documents/<document_id>/chunks")
blueprint.before_request(authenticate)
blueprint.url_value_preprocessor(_take_dataset_id)
blueprint.before_request(_own_the_dataset)


IGNORED = ("tag_kwd", "image_base64", "positions")
PassageText = Annotated[str, Field(pattern=VISIBLE)]
EXAMPLE = {"content": "Passwords are reset on the sign-in page.", "important_keywords": ["password"]}


class ChunkList(Paging, total=False):
    id: str
    keywords: str


class ChunkChange(TypedDict, total=False):
    """What a passage may be given; other fields of RAGFlow's have no effect, and the answer says so."""

    content: PassageText
    important_keywords: list[str] | None
    questions: list[str] | None
    available: Flag
    tag_kwd: Any
    image_base64: Any
    positions: Any


class NewChunk(TypedDict):
    content: PassageText
    important_keywords: NotRequired[list[str] | None]
    questions: NotRequired[list[str] | None]
    tag_kwd: NotRequired[Any]
    image_base64: NotRequired[Any]


class ChunkDeletion(TypedDict, total=False):
    """Passages of these ids, or with `delete_all` true all of the document."""

    chunk_ids: IdList
    delete_all: Any


class Chunk(TypedDict):
    """A passage of a document; `heading` are the titles above it."""

    id: str
    content: str
    document_id: str
    document_name: str
    docnm_kwd: str
    dataset_id: str
    important_keywords: list[str]
    questions: list[str]
    tag_kwd: list[str]
    image_id: str
    available: bool
    positions: list[Any]
    heading: str
    page: int | None
    create_timestamp: float


class AdvisedChunk(Chunk, Advised):
    """A passage, with what of the request has no effect."""


class OneChunk(Advised):
    """The same, a passage below."""

    chunk: Chunk


class Source(TypedDict):
    id: str
    name: str
    chunk_count: int
    run: str


class ChunkPage(TypedDict):
    chunks: list[Chunk]
    total: int
    doc: Source


@blueprint.get("")
@described(ChunkPage, query=ChunkList)
def list_chunks(document_id: str) -> Response:
    """One page of a document's passages, with the document and their number over all pages."""
    page, size = paging()
    found = ChunkService.get_list(
        principal(), dataset().id, document_id, page, size, id=request.args.get("id", ""),
        keywords=request.args.get("keywords", ""),
    )
    document = DocumentService.get(principal(), dataset().id, document_id)
    return success({
        "chunks": [_shown(row, document) for row in found.rows], "total": found.total,
        "doc": {"id": document.id, "name": document.name, "chunk_count": document.chunk_count, "run": document.run},
    })


@blueprint.post("")
@described(OneChunk, body=NewChunk, example=EXAMPLE)
def add(document_id: str) -> Response:
    """Add a passage written by hand, at the document's end."""
    body = read_object()
    content = text_of(body, "content")
    if not content or not content.strip():
        raise InvalidArgument("`content` is required")
    document = DocumentService.get(principal(), dataset().id, document_id)
    made = ChunkService.add(
        principal(), dataset().id, document_id, content, _texts(body, "important_keywords"), _texts(body, "questions"),
        _embedding(),
    )
    return success({"chunk": _shown(made, document)} | warned(ignored(body, IGNORED)))


@blueprint.put("/<chunk_id>")
@blueprint.patch("/<chunk_id>")
@described(AdvisedChunk, body=ChunkChange, example=EXAMPLE | {"available": True})
def update(document_id: str, chunk_id: str) -> Response:
    """Change a passage's content, keywords, questions, or whether it is found at all (`available`)."""
    body = read_object()
    document = DocumentService.get(principal(), dataset().id, document_id)
    fields: dict[str, Any] = {name: _texts(body, name) for name in ("important_keywords", "questions") if name in body}
    if "content" in body:
        fields["content"] = text_of(body, "content") or ""
    if body.get("available") is not None:
        fields["available"] = int(flag(body, "available", default=True))
    changed = ChunkService.update(principal(), dataset().id, document_id, chunk_id, fields, _embedding())
    return success(_shown(changed, document) | warned(ignored(body, IGNORED)))


@blueprint.delete("")
@described(Deleted, body=ChunkDeletion, example={"chunk_ids": [EXAMPLE_IDS["chunk_id"]]})
def delete_many(document_id: str) -> Response:
    """Take passages out of a document by id, or all with `delete_all` true."""
    body = read_object()
    ids = ids_of(body, "chunk_ids")

    def delete(wanted: list[str] | None) -> set[str]:
        return ChunkService.delete(principal(), dataset().id, document_id, wanted)

    if not ids:
        return success({"deleted": len(delete(None if body.get("delete_all") is True else []))})
    return report(
        ids, delete, "chunk", f"The document {document_id} doesn't have the chunk {{id}}",
        done=lambda count: {"deleted": count},
    )


def _embedding() -> EmbeddingModel | None:
    return chatkeep().models.find_embedding(dataset().embedding_model) if dataset().embedding_model else None


def _texts(body: dict[str, Any], name: str) -> list[str]:
    value = body.get(name) or []
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        raise InvalidArgument(f"`{name}` must be a list of texts, not {dumps(value).decode()[:80]}")
    return value


def _shown(chunk: DatasetChunk, document: DatasetDocument) -> dict[str, Any]:
    return {
        "id": chunk.id, "content": chunk.content, "document_id": chunk.document_id, "document_name": document.name,
        "docnm_kwd": document.name, "dataset_id": chunk.dataset_id, "important_keywords": chunk.important_keywords,
        "questions": chunk.questions, "tag_kwd": [], "image_id": "", "available": bool(chunk.available),
        "positions": chunk.positions, "heading": chunk.heading, "page": chunk.page,
        "create_timestamp": (chunk.create_time or document.create_time) / 1000,  # 0: by a server that kept no time
    }
