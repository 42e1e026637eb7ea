"""Envelopes: `{code, message, data}` on every JSON answer, and RAGFlow's shapes of our rows."""

from collections.abc import Iterable, Iterator
from email.utils import formatdate
from typing import Any

import orjson
from flask import Response

from db.document import DocumentText
from db.models import Dialog, DocumentRow
from services.messages import ragflow_view

BLOCK = 65_536  # bytes; memory of twice as much comes from the kernel, page by page


def dumps(value: Any) -> bytes:
    return orjson.dumps(value)


def envelope(code: int, message: str, data: Any, status: int = 200, **more: Any) -> Response:
    body = dumps({"code": code, "message": message, "data": data} | more)
    return Response(body, status, mimetype="application/json")


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
