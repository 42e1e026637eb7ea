"""Envelopes: `{code, message, data}` on every JSON answer, and RAGFlow's shapes of our rows."""

from email.utils import formatdate
from typing import Any

import orjson
from flask import Response

from db.document import DocumentText
from db.models import Dialog, DocumentRow
from services.messages import ragflow_view


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


def build_chat_response(dialog: Dialog, datasets: dict[str, str]) -> dict[str, Any]:
    """A chat as RAGFlow shows it: the row, with the datasets that still exist in place of `kb_ids`."""
    kept = [dataset_id for dataset_id in dialog.kb_ids if dataset_id in datasets]
    hidden = {"kb_ids", "name_key", "create_date", "update_date"}
    row = {name: value for name, value in dialog.__data__.items() if name not in hidden}
    return row | times(dialog) | {"dataset_ids": kept, "kb_names": [datasets[key] for key in kept]}
