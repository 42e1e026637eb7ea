"""Passages for a question, without a chat: RAGFlow's retrieval route."""

from typing import Annotated, Any, NotRequired

from flask import Blueprint, Response
from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import Flag, Id, IdList, flag, ids_of, limits, read_object
from api.datasets import text_of
from api.described import EXAMPLE_IDS, described
from api.ignored import ignored, warned
from api.question_fields import Filter
from api.responses import Advised, DocumentCount, Passage, dumps, success
from services.chat_advice import warnings
from services.errors import InvalidArgument, InvalidData
from services.knowledge.datasets import DatasetService
from services.knowledge.metadata import read_filter
from services.rag.highlight import highlighted
from services.rag.likeness import forms
from services.rag.retrieval import Wanted, retriever
from services.rag.retrievers import Document, doc_aggs, question_words, wire_chunk

blueprint = Blueprint("retrieval", __name__, url_prefix="/api/v1/retrieval")
blueprint.before_request(authenticate)

IGNORED = ("keyword", "cross_languages", "use_kg", "toc_enhance")
MOST = 1_024  # passages

Part = Annotated[float, Field(ge=0, description="more than 1 counts as 1")]


class Wish(TypedDict):
    """A question to datasets. `similarity = weight * vector + (1 - weight) * term`, each from 0 to 1."""

    dataset_ids: Annotated[list[Id], Field(min_length=1, json_schema_extra={"maxItems": "limits.ids"})]
    question: NotRequired[str | None]
    document_ids: NotRequired[IdList]
    page: NotRequired[Annotated[float, Field(ge=1)] | None]
    page_size: NotRequired[Annotated[float, Field(ge=1, description=f"more than {MOST} counts as {MOST}")] | None]
    top_k: NotRequired[Annotated[float, Field(ge=1, description=f"more than {MOST} counts as {MOST}")] | None]
    similarity_threshold: NotRequired[Part | None]
    vector_similarity_weight: NotRequired[Part | None]
    rerank_id: NotRequired[str | None]
    metadata_condition: NotRequired[Filter | None]
    highlight: NotRequired[Flag]


class FoundPassage(Passage):
    """A passage; `highlight` is its text with the question's words marked."""

    highlight: NotRequired[str]
    document_keyword: str | None
    important_keywords: list[str]
    available: bool


class Found(Advised):
    chunks: list[FoundPassage]
    total: int
    doc_aggs: list[DocumentCount]


def _marks(question: str) -> frozenset[str]:
    """The words that a passage is found and ranked by."""
    return frozenset(form for word in question_words(question) for form in forms(word))


@blueprint.post("")
@described(Found, body=Wish, example={"dataset_ids": [EXAMPLE_IDS["dataset_id"]], "question": "reset a password"})
def retrieve() -> Response:
    """The passages of datasets that fit a question, best first, one page of them."""
    body = read_object()
    dataset_ids = ids_of(body, "dataset_ids")
    if not dataset_ids:
        raise InvalidData("`dataset_ids` is required.")
    if any(not isinstance(id, str) for id in [*dataset_ids, *ids_of(body, "document_ids")]):
        raise InvalidArgument("`dataset_ids` and `document_ids` are lists of texts")
    DatasetService.check(principal(), dataset_ids, parsed=False)
    DatasetService.check_embeddings(principal(), dataset_ids)
    question = _question(body)
    page, size = int(_number(body, "page", 1, 1, 10**9)), int(_number(body, "page_size", 30, 1, MOST))
    wanted = _wanted(body, dataset_ids)
    found = retriever(principal(), wanted, chatkeep().models).retrieve(question, wanted.top_k)
    shown = found[(page - 1) * size : page * size]
    marks = _marks(question) if flag(body, "highlight", default=False) else None
    return success({
        "chunks": [_shown(each, marks) for each in shown], "total": len(found),
        "doc_aggs": doc_aggs(wire_chunk(each) for each in found),
    } | _warnings(body, dataset_ids))


def _question(body: dict[str, Any]) -> str:
    question = text_of(body, "question") or ""
    size, most = len(question.encode()), limits().message_bytes
    if size > most:
        raise InvalidArgument(f"`question` has {size} bytes; at most {most} are allowed")
    return question


def _wanted(body: dict[str, Any], dataset_ids: list[str]) -> Wanted:
    condition = body.get("metadata_condition")
    if condition is not None and not isinstance(condition, dict):
        raise InvalidArgument("`metadata_condition` must be an object")
    filters = [found for found in [read_filter(condition)] if found]
    return Wanted(
        dataset_ids, int(_number(body, "top_k", MOST, 1, MOST)), _number(body, "similarity_threshold", 0.2, 0, 1),
        _number(body, "vector_similarity_weight", 0.3, 0, 1), text_of(body, "rerank_id") or "",
        ids_of(body, "document_ids") or None, filters,
    )


def _number(body: dict[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = default if body.get(name) is None else body[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"`{name}` must be a number, not {dumps(value).decode()[:80]}")
    if not least <= value:
        raise InvalidArgument(f"`{name}` must be at least {least}, not {value}")
    return min(value, most)


def _warnings(body: dict[str, Any], dataset_ids: list[str]) -> dict[str, Any]:
    given = {"kb_ids": dataset_ids, "vector_similarity_weight": body.get("vector_similarity_weight")}
    return warned(ignored(body, IGNORED) + warnings(principal(), given, chatkeep().models))


def _shown(document: Document, marks: frozenset[str] | None) -> dict[str, Any]:
    chunk = wire_chunk(document)
    marked = {} if marks is None else {"highlight": highlighted(document.text, marks)}
    return chunk | marked | {
        "document_keyword": chunk["document_name"], "important_keywords": [], "image_id": "",
        "positions": chunk["positions"] or [], "available": True,
    }
