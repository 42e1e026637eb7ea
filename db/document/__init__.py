"""The paged document: a conversation's messages and, parallel to them, the references of its answers.

The row's two arrays are the open page; an UPDATE appends to them and mints `seq` in the database, so
no writer reads an array to add to it. The transaction that ends a turn seals an open page over the
limit into a page row. Only this package writes `message` and `reference`, and only it knows of pages.
Each method runs on its caller's connection; the lock order is conversation, run, the rest.
"""

from db.document.editing import PagedDocument
from db.document.statements import DEFAULT_NAME
from db.document.values import (
    NEWEST_FORMAT,
    Appended,
    DocumentConflict,
    DocumentMissing,
    DocumentText,
    DocumentTooNew,
    Loaded,
    PageRow,
)
from db.models import API4Conversation, Conversation

CONVERSATIONS = PagedDocument(Conversation)
API4_CONVERSATIONS = PagedDocument(API4Conversation)

__all__ = [
    "API4_CONVERSATIONS", "CONVERSATIONS", "DEFAULT_NAME", "NEWEST_FORMAT", "Appended", "DocumentConflict",
    "DocumentMissing", "DocumentText", "DocumentTooNew", "Loaded", "PageRow", "PagedDocument",
]
