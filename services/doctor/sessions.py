"""A session's rules: order, slots, counters, index and pages agree with what its document holds.

Sessions are read in keyset batches, each its own short read, so that no snapshot stands open for long.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from db.database import connection, fetch
from db.document import API4_CONVERSATIONS, CONVERSATIONS, DocumentTooNew, Loaded, PagedDocument
from db.jsontext import size
from db.models import DocumentRow
from db.unreadable import decoding
from services.doctor.finding import FIX, FROM_A_BACKUP, UNREADABLE, Finding
from services.principal import Principal, owned_by

BATCH = 1_000
RECOUNTED = {"next_seq", "message_count", "page_count", "document_bytes", "pages"}
REINDEXED = {"message_index"}
_TOLERANCE = 0.01  # jsonb rewrites numbers, so bytes may differ by this share
_BY_HAND = "export the session and report it; do not edit it by hand"


def examine_sessions() -> Iterator[list[Finding]]:
    """Every session's findings, an empty list where it is sound."""
    for document in (CONVERSATIONS, API4_CONVERSATIONS):
        for row in _rows(document):
            yield list(_examine(document, row))


def count_sessions() -> int:
    with connection():
        return sum(
            document.row.select().where(owned_by(Principal.system(), document.row)).count()
            for document in (CONVERSATIONS, API4_CONVERSATIONS)
        )


def _rows(document: PagedDocument) -> Iterator[DocumentRow]:
    row, after = document.row, ""
    while True:
        with connection():
            batch = list(
                row.select(row.id, row.next_seq).where(owned_by(Principal.system(), row), row.id > after)
                .order_by(row.id).limit(BATCH)
            )
        if not batch:
            return
        yield from batch
        after = batch[-1].id


def _examine(document: PagedDocument, row: DocumentRow) -> Iterator[Finding]:
    if row.next_seq == 0:
        return  # another system's arrays: the first write mends them
    try:
        with connection(), decoding():
            found = _read(document, row.id)
    except ValueError as error:
        yield Finding(UNREADABLE, row.id, f"{document.table}: it can't be read: {error}", FROM_A_BACKUP)
        return
    if found is None:
        return
    fresh, loaded, index, pages, active = found
    problems = [
        *_order(loaded), *_slots(loaded, active), *_counters(fresh, loaded, pages), *_index(loaded, index),
        *_pages(fresh, pages),
    ]
    for check, problem in problems:
        yield Finding(check, row.id, problem, FIX if check in RECOUNTED | REINDEXED else _BY_HAND)


def _read(document: PagedDocument, id: str) -> tuple[DocumentRow, Loaded, Any, Any, Any] | None:
    """One session's row, document, index and pages; read again where a write came between."""
    for _ in range(5):
        fresh = document.row.select(*document.row.light()).where(document.row.id == id).first()
        if fresh is None:
            return None
        try:
            loaded = document.load(fresh.tenant_id, id)
        except DocumentTooNew:
            return None
        index = fetch(
            "SELECT seq, uid, message_id, role FROM {message_index} WHERE conversation_id = %s ORDER BY seq", [id]
        )
        active = {row[0] for row in fetch(
            "SELECT turn_id FROM {run} WHERE conversation_id = %s AND status = 'active'", [id]
        )}
        pages = document.pages(id)
        again = document.row.select(*document.row.light()).where(document.row.id == id).first()
        if again is not None and fresh.revision == loaded.revision == again.revision:
            return fresh, loaded, index, pages, active
    return None


def _order(loaded: Loaded) -> Iterator[tuple[str, str]]:
    seqs = [entry.get("seq") for entry in loaded.entries]
    if any(not isinstance(seq, int) for seq in seqs):
        yield "seq", "an entry has no seq"
    elif any(later <= earlier for earlier, later in pairwise(seqs)):  # type: ignore[operator]
        yield "seq", "seq does not rise from entry to entry"
    uids = [entry.get("uid") for entry in loaded.entries]
    if len(set(uids)) != len(uids) or not all(uids):
        yield "uid", "an entry has no uid, or one that stands twice"


def _slots(loaded: Loaded, active: set[str]) -> Iterator[tuple[str, str]]:
    ended = [
        entry.get("id") for entry in loaded.entries if entry["role"] == "user" and entry.get("id") not in active
    ]
    slots = [slot.get("message_id") for slot in loaded.slots]
    if ended != slots:
        yield "slots", f"{len(ended)} ended turns have {len(slots)} slots, or in another order"


def _counters(row: DocumentRow, loaded: Loaded, pages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    last = max((entry.get("seq") or 0 for entry in loaded.entries), default=0)
    if row.next_seq <= last:
        yield "next_seq", f"next_seq is {row.next_seq}, but seq {last} is taken"
    if row.message_count != len(loaded.entries):
        yield "message_count", f"message_count is {row.message_count}, the document has {len(loaded.entries)} entries"
    if row.page_count != len(pages):
        yield "page_count", f"page_count is {row.page_count}, there are {len(pages)} pages"
    length = size([*loaded.entries, *loaded.slots])
    if abs(row.document_bytes - length) > max(length * _TOLERANCE, 2):
        yield "document_bytes", f"document_bytes is {row.document_bytes}, the document has {length}"


def _index(loaded: Loaded, index: Sequence[Any]) -> Iterator[tuple[str, str]]:
    wanted = [(entry.get("seq"), entry.get("uid"), entry.get("id"), entry["role"][:32]) for entry in loaded.entries]
    if wanted != [tuple(row) for row in index]:
        yield "message_index", f"the index has {len(index)} rows that do not match {len(wanted)} entries"


def _pages(row: DocumentRow, pages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for earlier, later in pairwise(pages):
        if later.first_seq <= earlier.last_seq:
            yield "pages", f"page {later.first_seq} begins before page {earlier.first_seq} ends"
    if sum(page.page_bytes for page in pages) + row.open_bytes != row.document_bytes:
        yield "pages", "the pages' bytes and the open page's do not add up to document_bytes"
