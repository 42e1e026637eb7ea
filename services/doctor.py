"""Doctor: every invariant of the store, looked at on a live database without changing it.

Sessions are read in keyset batches, each its own short read, so that no snapshot stands open for long.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from db.database import connection, fetch
from db.document import API4_CONVERSATIONS, CONVERSATIONS, DocumentTooNew, Loaded, PagedDocument
from db.jsontext import size
from db.models import DocumentRow
from services.principal import Principal, owned_by

BATCH = 1_000
_TOLERANCE = 0.01  # jsonb rewrites numbers, so bytes may differ by this share


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, what, and how to mend it."""

    check: str
    id: str
    problem: str
    mend: str


class Doctor:
    """Examines every tenant's rows. `retention_days` says when a deleted chat's sessions are due."""

    def __init__(self, retention_days: int) -> None:
        self.retention_days = retention_days
        self.examined = 0

    def examine(self) -> Iterator[Finding]:
        """Everything that is wrong, session by session, then what belongs to no session."""
        for document in (CONVERSATIONS, API4_CONVERSATIONS):
            for row in self._rows(document):
                self.examined += 1
                yield from self._examine(document, row)
        yield from _orphans()
        yield from _lost_runs()

    def due(self) -> int:
        """Sessions whose chat was deleted longer ago than the retention time."""
        before = int((time.time() - self.retention_days * 86_400) * 1000)
        with connection():
            [(count,)] = fetch(
                """SELECT count(*) FROM {conversation} c JOIN {dialog} d ON d.id = c.dialog_id
                WHERE d.status = '0' AND d.update_time < %s""", [before],
            )
        return int(count)

    def _rows(self, document: PagedDocument) -> Iterator[DocumentRow]:
        row, after = document.row, ""
        while True:
            with connection():
                batch = list(
                    row.select(*row.light()).where(owned_by(Principal.system(), row), row.id > after)
                    .order_by(row.id).limit(BATCH)
                )
            if not batch:
                return
            yield from batch
            after = batch[-1].id

    def _examine(self, document: PagedDocument, row: DocumentRow) -> Iterator[Finding]:
        if row.next_seq == 0:
            return  # another system's arrays: the first write mends them
        with connection():
            found = _read(document, row.id)
        if found is None:
            return
        fresh, loaded, index, pages, active = found
        problems = [
            *_order(loaded), *_slots(loaded, active), *_counters(fresh, loaded, pages), *_index(loaded, index),
            *_pages(fresh, pages),
        ]
        for check, problem in problems:
            yield Finding(check, row.id, problem, "export the session and report it; do not edit it by hand")


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
    if len(set(uids)) != len(uids) or None in uids:
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


def _orphans() -> Iterator[Finding]:
    without = """SELECT DISTINCT conversation_id FROM {%s} t WHERE conversation_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM {conversation} c WHERE c.id = t.conversation_id)
        AND NOT EXISTS (SELECT 1 FROM {api_4_conversation} c WHERE c.id = t.conversation_id)"""
    with connection():
        for table in ("run", "message_index"):
            for (id,) in fetch(without.replace("%s", table)):
                yield Finding("orphans", id, f"{table} rows of a session that is gone", f"delete them from {table}")
        for (id,) in fetch(
            "SELECT DISTINCT run_id FROM {run_event} e WHERE NOT EXISTS (SELECT 1 FROM {run} r WHERE r.id = e.run_id)"
        ):
            yield Finding("orphans", id, "journal of a run that is gone", "delete its rows from run_event")


def _lost_runs() -> Iterator[Finding]:
    with connection():
        for id, status in fetch(
            "SELECT id, status FROM {run} WHERE status IN ('active', 'queued') AND lease_until < {now} - 60"
        ):
            yield Finding("runs", id, f"{status}, but its owner is silent", "start a server: it recovers lost runs")
        for (id,) in fetch(
            "SELECT id FROM {run} WHERE (status IN ('active', 'queued')) = (outcome IS NOT NULL)"
        ):
            yield Finding("runs", id, "its status and its outcome contradict each other", "report it")
