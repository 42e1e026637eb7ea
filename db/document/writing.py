"""Writing documents: create, append, seal, adopt another system's arrays, move, erase."""

import functools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from db.database import change, database, dialect, fetch, transaction
from db.document.reading import DocumentReader
from db.document.statements import (
    APPEND_WITH_INDEX,
    EMPTIED,
    INDEX,
    NAMING,
    NEW_PAGE,
    SEAL_FIRST,
    append_statement,
    seal_statement,
)
from db.document.values import (
    Addition,
    Appended,
    DocumentConflict,
    DocumentMissing,
    Entry,
    Slot,
    batches,
    format_of,
    index_rows,
    known,
    paginate,
    settled,
    with_uid,
)
from db.ids import new_id
from db.jsontext import dumps, loads, size
from db.legacy import adopt, mend
from db.models import DocumentRow, date_of, now_ms
from db.postgres import POSTGRES

_NO_LIMIT = 2**62


class DocumentWriter(DocumentReader):
    """Writes the documents of one table; edits are a layer above."""

    def create(self, columns: Mapping[str, Any], prologue: str = "") -> DocumentRow:
        """Insert a row; its document holds the prologue, where there is one, and nothing else."""
        entries = [] if not prologue else [
            {"role": "assistant", "content": prologue, "uid": new_id(), "seq": 1, "created_at": now_ms() / 1000}
        ]
        length = size(entries)
        row: DocumentRow = self.row.create(
            **columns, message=entries, next_seq=len(entries) + 1, message_count=len(entries),
            open_bytes=length, document_bytes=length,
        )
        if entries:
            self._index(row.id, 1, entries)
        return row

    def append(
        self, tenant_id: str, id: str, entries: Sequence[Entry], slots: Sequence[Slot] = (), *,
        add: Mapping[str, float] | None = None, put: Mapping[str, Any] | None = None,
        title: str | None = None, expect_revision: int | None = None,
    ) -> Appended:
        """Append entries, and with an ended turn's answer its slot.

        An entry without `uid` gets one. `add` and `put` change the row's own columns in the same
        UPDATE; `title` becomes its name where nobody gave it one. Raises DocumentMissing,
        DocumentConflict, and peewee's IntegrityError for a `uid` that the document already holds.
        """
        counted: dict[str, Any] = {f"{name} = {name} + %s": value for name, value in (add or {}).items()}
        counted |= {f"{name} = %s": value for name, value in (put or {}).items()}
        if title:
            counted |= {NAMING["name"]: title, NAMING["name_source"]: "question"}
        steps = [Addition(*step) for step in batches([with_uid(entry) for entry in entries], slots)]
        alone = len(steps) == 1 and dialect() is POSTGRES  # one statement is a transaction by itself
        with nullcontext() if alone else transaction():
            first = last = self._append(tenant_id, id, steps[0], counted, expect_revision)
            for step in steps[1:]:
                last = self._append(tenant_id, id, step, {}, None)
        return Appended(first.first_seq, last.open_bytes, last.revision)

    def _append(
        self, tenant_id: str, id: str, new: Addition, counted: Mapping[str, Any], expect_revision: int | None
    ) -> Appended:
        guard = [] if expect_revision is None else [expect_revision]
        rows = self._write(tenant_id, id, new, counted, page_limit() - new.closing, guard)
        if not rows:
            with transaction():
                rows = self._append_with_care(tenant_id, id, new, counted, expect_revision)
        return Appended(*rows[0])

    def _append_with_care(
        self, tenant_id: str, id: str, new: Addition, counted: Mapping[str, Any], expect_revision: int | None
    ) -> list[tuple[Any, ...]]:
        """The same where the fast append found no room, or another system's arrays, or must say why not."""
        self._make_ready(tenant_id, id, expect_revision)
        write = functools.partial(self._write, tenant_id, id, new, counted, _NO_LIMIT)
        if self._open_bytes(id) > page_limit() and not new.only_answers:
            self._seal(id)
        if not new.slots or self._open_bytes(id) + new.length <= page_limit():
            return write()
        rows = write(sealing=True)
        if not rows:
            rows = write()
            self._seal_around_open_turns(id)
        return rows

    def _write(
        self, tenant_id: str, id: str, new: Addition, counted: Mapping[str, Any], open_limit: int,
        guard: Sequence[int] = (), *, sealing: bool = False,
    ) -> list[tuple[Any, ...]]:
        """One append. No row where the open page has more than `open_limit` bytes or the row needs care
        first; `sealing`, with all that the open page holds into a page row: no row where a turn would be cut."""
        engine, moment, shape = dialect().name, now_ms(), (len(new.entries), len(new.slots))
        statement = append_statement(engine, *shape, tuple(counted), guarded=bool(guard), sealing=sealing)
        values = [
            new.length, new.format, new.format, moment, date_of(moment), *counted.values(), id, tenant_id,
            open_limit, *guard,
        ]
        first = [*new.texts, new.length, *([id] if sealing else [])]
        seal = self._sql(seal_statement(engine, *shape, new.questions)) if sealing else ""
        if dialect() is POSTGRES:
            whole = APPEND_WITH_INDEX % (SEAL_FIRST % seal if seal else "", statement)
            return fetch(self._sql(whole), [*first, *values, id, dumps(index_rows(new.entries))])
        if seal:
            if not change(seal, first):
                return []
            first = []
        rows = fetch(self._sql(statement), [*first, *values])
        if rows:
            self._index(id, rows[0][0], new.entries)
        return rows

    def _make_ready(self, tenant_id: str, id: str, expect_revision: int | None) -> None:
        """Hold the row, or say why it can't be; adopt another system's arrays."""
        _, revision = self.lock(tenant_id, id)
        if expect_revision not in (None, revision):
            raise DocumentConflict(revision)
        self.ensure_adopted(tenant_id, id)

    def _open_bytes(self, id: str) -> int:
        [(open_bytes,)] = fetch(self._sql("SELECT open_bytes FROM {table} WHERE id = %s"), [id])
        return int(open_bytes)

    def _index(self, id: str, first_seq: int, entries: Sequence[Entry]) -> None:
        change(INDEX[dialect().name], [id, first_seq, dumps(index_rows(entries))])

    def _seal(self, id: str) -> None:
        """Move the open page into a page row. The caller holds the row."""
        if change(self._sql(seal_statement(dialect().name)), [0, id]):
            change(self._sql(f"UPDATE {{table}} SET {EMPTIED} WHERE id = %s"), [id])
        else:
            self._seal_around_open_turns(id)

    def _seal_around_open_turns(self, id: str) -> None:
        """A question was never answered, or is being answered: move the whole turns before that one.

        Only where the page has grown far over its limit: this reads it.
        """
        [(length, message, reference)] = fetch(
            self._sql("SELECT open_bytes, CAST(message AS text), CAST(reference AS text) FROM {table} WHERE id = %s"),
            [id],
        )
        if length <= 4 * page_limit():
            return
        entries, slots = loads(message), loads(reference)
        running = fetch("SELECT turn_id FROM {run} WHERE conversation_id = %s AND status = 'active'", [id])
        count = settled(entries, slots, {row[0] for row in running})
        if count == 0:
            return
        turns = {entry.get("id") for entry in entries[:count]}
        moved = [slot for slot in slots if slot["message_id"] in turns]
        self._insert_page(id, entries[:count], moved)
        kept = [slot for slot in slots if slot["message_id"] not in turns]
        change(
            self._sql("""UPDATE {table} SET message = %s, reference = %s, open_bytes = %s,
                page_count = page_count + 1 WHERE id = %s"""),
            [dumps(entries[count:]), dumps(kept), size([*entries[count:], *kept]), id],
        )

    def lock(self, tenant_id: str, id: str) -> tuple[int, int]:
        """Hold the row until the transaction's end; its next_seq and revision.

        Raises DocumentMissing, DocumentTooNew.
        """
        rows = fetch(
            self._sql("SELECT next_seq, revision, format FROM {table} WHERE id = %s AND tenant_id = %s{for_update}"),
            [id, tenant_id],
        )
        if not rows:
            raise DocumentMissing(id)
        next_seq, revision, form = rows[0]
        known(form)
        return next_seq, revision

    def ensure_adopted(self, tenant_id: str, id: str) -> int:
        """Hold the row; arrays of another system are mended, indexed and split into pages first. Its next_seq."""
        next_seq, _ = self.lock(tenant_id, id)
        return next_seq or self._adopt(id)

    def _adopt(self, id: str) -> int:
        [(message, reference)] = fetch(
            self._sql("SELECT CAST(message AS text), CAST(reference AS text) FROM {table} WHERE id = %s"), [id]
        )
        pages = paginate(adopt(mend(loads(message), loads(reference))), page_limit())
        entries = [entry for page in pages for entry in page[0]]
        for page_entries, page_slots in pages[:-1]:
            self._insert_page(id, page_entries, page_slots)
        open_entries, open_slots = pages[-1] if pages else ([], [])
        change(
            self._sql("""UPDATE {table} SET message = %s, reference = %s, next_seq = %s, message_count = %s,
                page_count = %s, open_bytes = %s, document_bytes = %s, format = %s, revision = revision + 1
                WHERE id = %s"""),
            [
                dumps(open_entries), dumps(open_slots), len(entries) + 1, len(entries), max(len(pages) - 1, 0),
                size([*open_entries, *open_slots]), sum(size([*page[0], *page[1]]) for page in pages),
                format_of(entries), id,
            ],
        )
        if entries:
            self._index(id, 1, entries)
        return len(entries) + 1

    def _insert_page(self, id: str, entries: list[Entry], slots: list[Slot]) -> None:
        change(
            self._sql(NEW_PAGE + " VALUES (%s, %s, %s, %s, %s, %s, %s)"),
            [id, entries[0]["seq"], entries[-1]["seq"], len(entries), dumps(entries), dumps(slots),
             size([*entries, *slots])],
        )

    def find_turn(self, tenant_id: str, id: str, turn_id: str) -> int | None:
        """The same for a document that may be another system's still: it is adopted to be searched."""
        seq = self.first_seq(id, turn_id)
        if seq is None and fetch(self._sql("SELECT 1 FROM {table} WHERE id = %s AND next_seq = 0"), [id]):
            with transaction():
                self.ensure_adopted(tenant_id, id)
            seq = self.first_seq(id, turn_id)
        return seq

    def delete(self, tenant_id: str, ids: Sequence[str]) -> set[str]:
        """Erase documents with their pages, runs, journal and index; the ids that were there."""
        marks = ", ".join(["%s"] * len(ids))
        with transaction():
            gone = {
                row[0] for row in fetch(
                    self._sql(f"DELETE FROM {{table}} WHERE id IN ({marks}) AND tenant_id = %s RETURNING id"),
                    [*ids, tenant_id],
                )
            }
            for id in gone:
                forget(id, "seq > %s", 0)
                change("""DELETE FROM {run_event} WHERE run_id IN
                    (SELECT id FROM {run} WHERE conversation_id = %s)""", [id])
                change("DELETE FROM {run} WHERE conversation_id = %s", [id])
        return gone

    def move(self, tenant_id: str, old_id: str, new_id: str) -> bool:
        """Give a document another id, with its pages, runs and index; False where there is none."""
        moved = change(
            self._sql("""UPDATE {table} SET id = %s WHERE id = %s AND tenant_id = %s
                AND NOT EXISTS (SELECT 1 FROM {table} WHERE id = %s)"""), [new_id, old_id, tenant_id, new_id],
        ) > 0
        if moved:
            for table in ("run", "message_index"):
                change(f"UPDATE {{{table}}} SET conversation_id = %s WHERE conversation_id = %s", [new_id, old_id])
        return moved


def forget(id: str, which: str, value: Any) -> None:
    """Drop index rows, and the ended runs of their turns: a question asked again under its old id is new."""
    turns = f"SELECT message_id FROM {{message_index}} WHERE conversation_id = %s AND {which}"
    runs = f"SELECT id FROM {{run}} WHERE conversation_id = %s AND turn_id IN ({turns})"
    change(f"DELETE FROM {{run_event}} WHERE run_id IN ({runs})", [id, id, value])
    change(f"DELETE FROM {{run}} WHERE id IN ({runs})", [id, id, value])
    change(f"DELETE FROM {{message_index}} WHERE conversation_id = %s AND {which}", [id, value])


def page_limit() -> int:
    """Bytes over which an open page is sealed."""
    return int(database.obj.limits.page_bytes)
