"""Envelopes: `{code, message, data}` on every JSON answer, and RAGFlow's shapes of our rows."""

from collections.abc import Iterable, Iterator
from email.utils import formatdate
from typing import Annotated, Any, Literal, NotRequired

import orjson
from flask import Response
from pydantic import Field, with_config
from typing_extensions import TypedDict

from db.document import DocumentText
from db.models import Dialog, DocumentRow
from services.events import ErrorCode, FinishReason
from services.messages import ragflow_view

BLOCK = 65_536  # bytes; memory of twice as much comes from the kernel, page by page


class Times(TypedDict):
    """Epoch milliseconds, and the same as an HTTP date in UTC."""

    create_time: int
    create_date: str
    update_time: int
    update_date: str


class Refusal(TypedDict):
    """`code` says what is wrong: 101 an argument, 102 what is stored doesn't allow it, 109 another's or unknown chat,
    100 a body that is a JSON text, or a fault of the server; else the HTTP status."""

    code: Annotated[int, Field(ge=100)]
    message: str
    data: dict[str, Any] | Literal[False] | None
    error: NotRequired[str]


class Chat(Times):
    """A chat: its model, its prompt, its datasets."""

    id: str
    tenant_id: str
    name: str
    description: str | None
    icon: str | None
    language: str | None
    llm_id: str
    tenant_llm_id: str | None
    llm_setting: dict[str, Any]
    prompt_type: str
    prompt_config: dict[str, Any]
    meta_data_filter: dict[str, Any] | None
    similarity_threshold: float
    vector_similarity_weight: float
    top_n: int
    top_k: int
    do_refer: str
    rerank_id: str
    tenant_rerank_id: str | None
    status: str
    dataset_ids: list[str]
    kb_names: list[str]


class Advised(TypedDict, total=False):
    """Sentences about what the request asks for and this server doesn't do."""

    warnings: list[str]


@with_config(extra="allow")
class Message(TypedDict):
    """One entry of a session; `id` names its turn. A client's own keys stay on its messages."""

    role: str
    content: str
    id: NotRequired[str]
    uid: NotRequired[str]
    seq: NotRequired[int]
    created_at: NotRequired[float]
    finish_reason: NotRequired[FinishReason]
    run_id: NotRequired[str]
    token_count: NotRequired[int]
    error_code: NotRequired[ErrorCode]
    error_message: NotRequired[str | None]
    thumbup: NotRequired[bool]
    feedback: NotRequired[Any]


class Passage(TypedDict):
    """A passage of an answer's reference: these keys, null where nothing is known."""

    id: str | None
    content: str | None
    document_id: str | None
    document_name: str | None
    dataset_id: str | None
    image_id: str | None
    positions: list[Any] | None
    url: str | None
    similarity: float | None
    vector_similarity: float | None
    term_similarity: float | None
    row_id: Any
    doc_type: str | None
    document_metadata: dict[str, Any] | None


class DocumentCount(TypedDict):
    """How many passages come from a document."""

    doc_id: str | None
    doc_name: str | None
    count: int


class Slot(TypedDict):
    """What the answer of one turn rests on; `citations` are indexes into `chunks`."""

    message_id: str
    chunks: list[Passage]
    doc_aggs: list[DocumentCount]
    citations: NotRequired[list[int]]


class LightSession(Times):
    """A session without its messages."""

    id: str
    chat_id: str
    name: str | None
    user_id: str


class Session(LightSession):
    """A session with all its messages, and the reference of each turn."""

    messages: list[Message]
    reference: list[Slot]


def dumps(value: Any) -> bytes:
    return orjson.dumps(value)


class Envelope(Response):
    """An answer that knows its code: log and metrics tell it."""

    code: int


def envelope(code: int, message: str, data: Any, status: int = 200, **more: Any) -> Response:
    body = dumps({"code": code, "message": message, "data": data} | more)
    response = Envelope(body, status, mimetype="application/json")
    response.code = code
    return response


def success(data: Any, message: str = "success") -> Response:
    return envelope(0, message, data)


def http_date(milliseconds: int | None) -> str | None:
    """RAGFlow's `*_date`: an HTTP date, UTC."""
    return None if milliseconds is None else formatdate(milliseconds / 1000, usegmt=True)


def times(row: Any) -> dict[str, Any]:
    return {
        "create_time": row.create_time, "create_date": http_date(row.create_time),
        "update_time": row.update_time, "update_date": http_date(row.update_time),
    }


def build_session_response(row: DocumentRow, document: DocumentText | None = None) -> dict[str, Any]:
    """A session as RAGFlow shows it; without a document it is a light one.

    A document of questions and answers alone goes out as the text that the database gave.
    """
    session = {
        "id": row.id, "chat_id": row.dialog_id, "name": row.name, "user_id": row.user_id or row.tenant_id,
    } | times(row)
    if document is None:
        return session
    if document.format == 1:
        return session | {
            "messages": orjson.Fragment(document.array(0)), "reference": orjson.Fragment(document.array(1)),
        }
    whole = document.parsed()
    messages, reference = ragflow_view(whole.entries, whole.slots)
    return session | {"messages": messages, "reference": reference}


def session_pieces(row: DocumentRow, document: DocumentText) -> Iterator[bytes | memoryview]:
    """The same as JSON, in pieces: a long document isn't copied to be put together."""
    if document.format != 1:
        yield dumps(build_session_response(row, document))
        return
    yield dumps(build_session_response(row))[:-1] + b',"messages":'
    yield from document.pieces(0)
    yield b',"reference":'
    yield from document.pieces(1)
    yield b"}"


def blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Pieces put together to what is worth a write of its own, and is small enough to be had without the kernel."""
    held: list[bytes | memoryview] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= BLOCK:
            yield b"".join(held)
            held, length = [], 0
    yield b"".join(held)


def build_chat_response(dialog: Dialog, datasets: dict[str, str]) -> dict[str, Any]:
    """A chat as RAGFlow shows it: the row, with the datasets that still exist in place of `kb_ids`."""
    kept = [dataset_id for dataset_id in dialog.kb_ids if dataset_id in datasets]
    hidden = {"kb_ids", "name_key", "create_date", "update_date"}
    row = {name: value for name, value in dialog.__data__.items() if name not in hidden}
    return row | times(dialog) | {"dataset_ids": kept, "kb_names": [datasets[key] for key in kept]}
