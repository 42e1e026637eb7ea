"""The paged document: a conversation's messages and, parallel to them, the references of its answers.

The row's two arrays are the open page; an UPDATE appends to them and mints `seq` in the database, so
no writer reads an array to add to it. The transaction that ends a turn seals an open page over the
limit into a page row. Only this module writes `message` and `reference`, and only it knows of pages.
Each method runs on its caller's connection; the lock order is conversation, run, the rest.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.database import POSTGRES, change, database, dialect, fetch, transaction
from db.ids import new_id
from db.jsontext import dumps, loads, size
from db.legacy import LegacyTurn, adopt, mend
from db.models import API4Conversation, Conversation, DocumentRow, date_of, now_ms

Entry = dict[str, Any]
Slot = dict[str, Any]
Change = Callable[[list[Entry], list[Slot]], tuple[list[Entry], list[Slot]]]

NEWEST_FORMAT = 2
_RAGFLOW_ROLES = ("user", "assistant")
_BATCH = 30  # entries a statement: both engines limit a function's arguments

APPEND = {
    "sqlite": """UPDATE {table} SET message = json_insert(message%(entries)s),
        reference = json_insert(reference%(slots)s), %(counters)s""",
    "postgres": """UPDATE {table} SET message = message || jsonb_build_array(%(entries)s),
        reference = reference || jsonb_build_array(%(slots)s), %(counters)s""",
}
APPEND_ENTRY = {
    "sqlite": ", '$[#]', json_set(json(%%s), '$.seq', next_seq + %d)",
    "postgres": "%%s::jsonb || jsonb_build_object('seq', next_seq + %d)",
}
APPEND_SLOT = {"sqlite": ", '$[#]', json(%s)", "postgres": "%s::jsonb"}
APPEND_COUNTERS = """next_seq = next_seq + %(count)d, message_count = message_count + %(count)d,
    revision = revision + 1, open_bytes = open_bytes + %%s, document_bytes = document_bytes + %%s,
    format = CASE WHEN format < %%s THEN %%s ELSE format END, update_time = %%s, update_date = %%s%(sets)s
    WHERE id = %%s AND tenant_id = %%s AND next_seq > 0%(unless)s
    RETURNING next_seq - %(count)d AS first_seq, open_bytes, revision"""

# The index rows go in the append's own statement where the engine can (SQLite has no such CTE).
INDEX_ROWS = """INSERT INTO {message_index} (conversation_id, seq, uid, message_id, role)"""
APPEND_WITH_INDEX = "WITH w AS (%s), i AS (" + INDEX_ROWS + """
    SELECT %%s, w.first_seq + e.o - 1, e.v->>0, e.v->>1, e.v->>2
    FROM w, jsonb_array_elements(%%s::jsonb) WITH ORDINALITY e(v, o)) SELECT * FROM w"""
INDEX = {
    "sqlite": INDEX_ROWS + """ SELECT %s, %s + key, json_extract(value, '$[0]'),
        json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(%s)""",
    "postgres": INDEX_ROWS + """ SELECT %s, %s + e.o - 1, e.v->>0, e.v->>1, e.v->>2
        FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY e(v, o)""",
}

_NEW_PAGE = """INSERT INTO {page} (conversation_id, first_seq, last_seq, message_count, page_bytes, message,
    reference)"""
# Only ended turns move: as many slots as questions in the open page, and none is cut in two.
SEAL = {
    "sqlite": (
        _NEW_PAGE + """ SELECT id, json_extract(message, '$[0].seq'), json_extract(message, '$[#-1].seq'),
            json_array_length(message), open_bytes, message, reference FROM {table}
            WHERE id = %s AND json_array_length(message) > 0 AND json_array_length(reference) =
            (SELECT count(*) FROM json_each(message) WHERE json_extract(value, '$.role') = 'user')""",
        """UPDATE {table} SET message = '[]', reference = '[]', open_bytes = 0,
            page_count = page_count + 1 WHERE id = %s""",
    ),
    "postgres": (
        "WITH p AS (" + _NEW_PAGE + """ SELECT id, (message->0->>'seq')::bigint, (message->-1->>'seq')::bigint,
            jsonb_array_length(message), open_bytes, message::text::json, reference::text::json FROM {table}
            WHERE id = %s AND jsonb_array_length(message) > 0 AND jsonb_array_length(reference) =
            jsonb_array_length(jsonb_path_query_array(message, '$[*] ? (@.role == "user")'))
            RETURNING conversation_id)
        UPDATE {table} SET message = '[]', reference = '[]', open_bytes = 0, page_count = page_count + 1
            WHERE id IN (SELECT conversation_id FROM p)""",
    ),
}

# One statement is one snapshot: two would miss a turn that is sealed between them, or show it twice.
READ = """SELECT conversation_id, first_seq, CAST(message AS text), CAST(reference AS text), -1, 0 FROM {page}
    WHERE conversation_id IN (%(ids)s)%(pages)s
    UNION ALL SELECT id, next_seq, CAST(message AS text), CAST(reference AS text), format, revision
    FROM {table} WHERE id IN (%(ids)s) AND tenant_id = %%s"""
_IN_RANGE = """ AND first_seq <= %s AND first_seq >= coalesce((SELECT max(first_seq) FROM {page}
    WHERE conversation_id = %s AND first_seq <= %s), 0)"""


class DocumentMissing(LookupError):
    """No such document, or not this tenant's: an UPDATE that touched no row is never success."""


class DocumentConflict(Exception):
    """The document changed since its caller read it; `revision` is the current one."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"the session has changed meanwhile: its revision is {revision}")
        self.revision = revision


class DocumentTooNew(Exception):
    """A later release wrote this document."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an append landed: the first entry's seq, the open page's bytes and the row's revision after it."""

    first_seq: int
    open_bytes: int
    revision: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A whole document, or a range of it, parsed. Format 0 is mended, but has no seq yet."""

    entries: list[Entry]
    slots: list[Slot]
    format: int
    revision: int


@dataclass(frozen=True, slots=True)
class PageRow:
    """Which seqs a sealed page holds, and how many bytes they have."""

    first_seq: int
    last_seq: int
    page_bytes: int


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A whole document as JSON text, page by page, so that nobody copies it whole to write it out."""

    pages: list[tuple[str, str]]
    format: int

    @property
    def message(self) -> str:
        return self.array(0).decode()

    @property
    def reference(self) -> str:
        return self.array(1).decode()

    def array(self, column: int) -> bytes:
        """One of the two arrays (0 messages, 1 references) in UTF-8."""
        texts = (page[column] for page in self.pages)
        return b"[%s]" % b",".join(text[1:-1].encode() for text in texts if text != "[]")

    def parsed(self) -> Loaded:
        return _parse(self.pages, self.format, 0)


class PagedDocument:
    """The documents of one table."""

    def __init__(self, row: type[DocumentRow]) -> None:
        self.row = row
        self.table: str = row._meta.table_name

    def _sql(self, statement: str) -> str:
        return statement.replace("{table}", "{%s}" % self.table).replace("{page}", "{%s_page}" % self.table)

    # -- writes ---------------------------------------------------------------------------------

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
        expect_revision: int | None = None,
    ) -> Appended:
        """Append entries, and with an ended turn's answer its slot.

        An entry without `uid` gets one. `add` and `put` change the row's own columns in the same
        UPDATE. Raises DocumentMissing, DocumentConflict, and peewee's IntegrityError for a `uid`
        that the document already holds.
        """
        kept = [_with_uid(entry) for entry in entries]
        steps = [*_batches(kept, slots)]
        with transaction():
            first = last = self._append_batch(tenant_id, id, *steps[0], {}, {}, expect_revision)
            for more, their_slots in steps[1:]:
                last = self._append_batch(tenant_id, id, more, their_slots, {}, {}, None)
        return Appended(first.first_seq, last.open_bytes, last.revision)

    def _index(self, id: str, first_seq: int, entries: Sequence[Entry]) -> None:
        change(INDEX[dialect().name], [id, first_seq, dumps(_index_rows(entries))])

    def _seal(self, id: str) -> None:
        insert, *reset = SEAL[dialect().name]
        if change(self._sql(insert), [id]) and reset:
            change(self._sql(reset[0]), [id])

    def lock(self, tenant_id: str, id: str) -> tuple[int, int]:
        """Hold the row until the transaction's end; its next_seq and revision. Raises DocumentMissing."""
        rows = fetch(
            self._sql("SELECT next_seq, revision FROM {table} WHERE id = %s AND tenant_id = %s{for_update}"),
            [id, tenant_id],
        )
        if not rows:
            raise DocumentMissing(id)
        next_seq, revision = rows[0]
        return next_seq, revision

    def ensure_adopted(self, tenant_id: str, id: str) -> int:
        """Hold the row; arrays of another system are mended, indexed and split into pages first. Its next_seq."""
        next_seq, _ = self.lock(tenant_id, id)
        if next_seq == 0:
            self._adopt(tenant_id, id, None)
            next_seq, _ = self.lock(tenant_id, id)
        return next_seq

    def _adopt(self, tenant_id: str, id: str, expect_revision: int | None) -> None:
        next_seq, revision = self.lock(tenant_id, id)
        if expect_revision not in (None, revision):
            raise DocumentConflict(revision)
        if next_seq > 0:  # another writer adopted it between our UPDATE and our lock
            return
        [(message, reference)] = fetch(
            self._sql("SELECT CAST(message AS text), CAST(reference AS text) FROM {table} WHERE id = %s"), [id]
        )
        pages = _paginate(adopt(mend(loads(message), loads(reference))), _page_limit())
        entries = [entry for page in pages for entry in page[0]]
        for page_entries, page_slots in pages[:-1]:
            self._insert_page(id, page_entries, page_slots)
        open_entries, open_slots = pages[-1] if pages else ([], [])
        moment = now_ms()
        change(
            self._sql("""UPDATE {table} SET message = %s, reference = %s, next_seq = %s, message_count = %s,
                page_count = %s, open_bytes = %s, document_bytes = %s, format = %s, revision = revision + 1,
                update_time = %s, update_date = %s WHERE id = %s"""),
            [
                dumps(open_entries), dumps(open_slots), len(entries) + 1, len(entries), max(len(pages) - 1, 0),
                size([*open_entries, *open_slots]), sum(size([*page[0], *page[1]]) for page in pages),
                _format(entries), moment, date_of(moment), id,
            ],
        )
        if entries:
            self._index(id, 1, entries)

    def _insert_page(self, id: str, entries: list[Entry], slots: list[Slot]) -> None:
        change(
            self._sql(_NEW_PAGE + " VALUES (%s, %s, %s, %s, %s, %s, %s)"),
            [id, entries[0]["seq"], entries[-1]["seq"], len(entries), size([*entries, *slots]),
             dumps(entries), dumps(slots)],
        )

    # -- edits: one page is read, changed and written under the row's lock ----------------------

    def edit_turn(self, tenant_id: str, id: str, turn_id: str, edit: Change) -> bool:
        """Change the page that holds a turn; `edit` gets its entries and slots and returns the new ones.

        False where no entry has this turn id: then nothing is written. Raises DocumentMissing.
        """
        with transaction():
            self.ensure_adopted(tenant_id, id)
            seq = self.first_seq(id, turn_id)
            if seq is None:
                return False
            self._edit_page(id, seq, edit)
        return True

    def delete_turn(self, tenant_id: str, id: str, turn_id: str) -> bool:
        """Remove a turn: its entries, its slot, its run. Others stay as they are."""
        def without(entries: list[Entry], slots: list[Slot]) -> tuple[list[Entry], list[Slot]]:
            return (
                [entry for entry in entries if entry.get("id") != turn_id],
                [slot for slot in slots if slot.get("message_id") != turn_id],
            )

        with transaction():
            found = self.edit_turn(tenant_id, id, turn_id, without)
            _forget(id, "message_id = %s", turn_id)
        return found

    def rewind(self, tenant_id: str, id: str, seq: int) -> int:
        """Remove the turn that holds `seq` and all after it; the number of entries removed.

        `next_seq` isn't given back. An unknown seq removes nothing; the prologue is no turn and stays.
        """
        with transaction():
            self.ensure_adopted(tenant_id, id)
            found = fetch(
                """SELECT min(seq) FROM {message_index} WHERE conversation_id = %s AND message_id =
                (SELECT message_id FROM {message_index} WHERE conversation_id = %s AND seq = %s)""",
                [id, id, seq],
            )
            first = found[0][0]
            if first is None:
                return 0
            [(count,)] = fetch(
                "SELECT count(*) FROM {message_index} WHERE conversation_id = %s AND seq >= %s", [id, first]
            )
            self._drop_pages_from(id, first)
            self._edit_page(id, first, lambda entries, slots: _before(entries, slots, first), open_too=True)
            _forget(id, "seq >= %s", first)
        return int(count)

    def first_seq(self, id: str, turn_id: str) -> int | None:
        """Where a turn begins; None where no entry has this turn id."""
        [(seq,)] = fetch(
            "SELECT min(seq) FROM {message_index} WHERE conversation_id = %s AND message_id = %s", [id, turn_id]
        )
        return None if seq is None else int(seq)

    def find_turn(self, tenant_id: str, id: str, turn_id: str) -> int | None:
        """The same for a document that may be another system's still: it is adopted to be searched."""
        seq = self.first_seq(id, turn_id)
        if seq is None and fetch(self._sql("SELECT 1 FROM {table} WHERE id = %s AND next_seq = 0"), [id]):
            with transaction():
                self.ensure_adopted(tenant_id, id)
            seq = self.first_seq(id, turn_id)
        return seq

    def _edit_page(self, id: str, seq: int, edit: Change, *, open_too: bool = False) -> None:
        pages = fetch(
            self._sql("""SELECT first_seq, last_seq, page_bytes, CAST(message AS text), CAST(reference AS text)
                FROM {page} WHERE conversation_id = %s AND first_seq <= %s ORDER BY first_seq DESC LIMIT 1"""),
            [id, seq],
        )
        in_page = bool(pages) and pages[0][1] >= seq
        if in_page:
            first_seq, _, old_bytes, message, reference = pages[0]
            old = loads(message)
            entries, slots = edit(old, loads(reference))
            length = size([*entries, *slots])
            self._write_page(id, first_seq, entries, slots, length)
            self._count(id, len(entries) - len(old), length - old_bytes, pages=-1 if not entries else 0)
        if open_too or not in_page:
            self._edit_open_page(id, edit)

    def _edit_open_page(self, id: str, edit: Change) -> None:
        [(old_bytes, message, reference)] = fetch(
            self._sql("""SELECT open_bytes, CAST(message AS text), CAST(reference AS text) FROM {table}
                WHERE id = %s"""), [id],
        )
        old = loads(message)
        entries, slots = edit(old, loads(reference))
        length = size([*entries, *slots])
        change(
            self._sql("UPDATE {table} SET message = %s, reference = %s, open_bytes = %s WHERE id = %s"),
            [dumps(entries), dumps(slots), length, id],
        )
        self._count(id, len(entries) - len(old), length - old_bytes)

    def _write_page(self, id: str, first_seq: int, entries: list[Entry], slots: list[Slot], length: int) -> None:
        if not entries:
            change(self._sql("DELETE FROM {page} WHERE conversation_id = %s AND first_seq = %s"), [id, first_seq])
            return
        change(
            self._sql("""UPDATE {page} SET first_seq = %s, last_seq = %s, message_count = %s, page_bytes = %s,
                message = %s, reference = %s WHERE conversation_id = %s AND first_seq = %s"""),
            [entries[0]["seq"], entries[-1]["seq"], len(entries), length, dumps(entries), dumps(slots),
             id, first_seq],
        )

    def _drop_pages_from(self, id: str, seq: int) -> None:
        where = "FROM {page} WHERE conversation_id = %s AND first_seq >= %s"
        [(pages, messages, length)] = fetch(
            self._sql(f"SELECT count(*), coalesce(sum(message_count), 0), coalesce(sum(page_bytes), 0) {where}"),
            [id, seq],
        )
        if pages:
            change(self._sql(f"DELETE {where}"), [id, seq])
            self._count(id, -int(messages), -int(length), pages=-pages)

    def _count(self, id: str, messages: int, length: int, *, pages: int = 0) -> None:
        moment = now_ms()
        change(
            self._sql("""UPDATE {table} SET message_count = message_count + %s, page_count = page_count + %s,
                document_bytes = document_bytes + %s, revision = revision + 1, update_time = %s,
                update_date = %s WHERE id = %s"""),
            [messages, pages, length, moment, date_of(moment), id],
        )

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
                _forget(id, "seq > %s", 0)
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

    # -- reads ----------------------------------------------------------------------------------

    def load(self, tenant_id: str, id: str) -> Loaded:
        """The whole document. Raises DocumentMissing."""
        parts, form, revision = self._read(tenant_id, id)
        return _parse(parts, form, revision)

    def load_range(self, tenant_id: str, id: str, first: int, last: int) -> Loaded:
        """The entries with first <= seq <= last and the slots of their turns, from their pages alone."""
        parts, form, revision = self._read(tenant_id, id, (first, last))
        whole = _parse(parts, form, revision)
        if form == 0:
            return whole
        entries = [entry for entry in whole.entries if first <= entry["seq"] <= last]
        turns = {entry.get("id") for entry in entries} - {None}
        return Loaded(entries, [slot for slot in whole.slots if slot["message_id"] in turns], form, revision)

    def load_turn(self, tenant_id: str, id: str, turn_id: str) -> Loaded:
        """One turn's entries and its slot; both empty for an unknown id. Raises DocumentMissing."""
        [(first, last)] = fetch(
            "SELECT min(seq), max(seq) FROM {message_index} WHERE conversation_id = %s AND message_id = %s",
            [id, turn_id],
        )
        near = self.load_range(tenant_id, id, first or 0, last or 0)
        return Loaded(
            [entry for entry in near.entries if entry.get("id") == turn_id],
            [slot for slot in near.slots if slot["message_id"] == turn_id], near.format, near.revision,
        )

    def pages(self, id: str) -> list[PageRow]:
        """The sealed pages without their content, in order: for those who check them."""
        return [PageRow(*row) for row in fetch(
            self._sql("SELECT first_seq, last_seq, page_bytes FROM {page} WHERE conversation_id = %s ORDER BY 1"), [id]
        )]

    def load_text(self, tenant_id: str, id: str) -> DocumentText:
        """The whole document as JSON text, unparsed. Raises DocumentMissing."""
        parts, form, _ = self._read(tenant_id, id)
        return DocumentText(parts, form)

    def load_texts(self, tenant_id: str, sizes: Mapping[str, int]) -> Iterator[dict[str, DocumentText]]:
        """Many documents as text, in batches bounded by the bytes that `sizes` (by id) promises.

        Each batch is one statement; a document deleted meanwhile is missing from its batch.
        """
        batch: list[str] = []
        held = 0
        for id, length in sizes.items():
            if batch and held + length > database.obj.limits.batch_bytes:
                yield self._texts(tenant_id, batch)
                batch, held = [], 0
            batch.append(id)
            held += length
        if batch:
            yield self._texts(tenant_id, batch)

    def _texts(self, tenant_id: str, ids: list[str]) -> dict[str, DocumentText]:
        return {id: DocumentText(parts, form) for id, (parts, form, _) in self._read_many(tenant_id, ids).items()}

    def _read(
        self, tenant_id: str, id: str, within: tuple[int, int] | None = None
    ) -> tuple[list[tuple[str, str]], int, int]:
        found = self._read_many(tenant_id, [id], within)
        if id not in found:
            raise DocumentMissing(id)
        return found[id]

    def _read_many(
        self, tenant_id: str, ids: Sequence[str], within: tuple[int, int] | None = None
    ) -> dict[str, tuple[list[tuple[str, str]], int, int]]:
        marks = ", ".join(["%s"] * len(ids))
        statement = READ % {"ids": marks, "pages": _IN_RANGE if within else ""}
        between = [within[1], ids[0], within[0]] if within else []
        rows = sorted(fetch(self._sql(statement), [*ids, *between, *ids, tenant_id]), key=lambda row: row[:2])
        found: dict[str, tuple[list[tuple[str, str]], int, int]] = {}
        parts: dict[str, list[tuple[str, str]]] = {}
        for id, _, message, reference, form, revision in rows:
            parts.setdefault(id, []).append((message, reference))
            if form >= 0:  # the open page, after all the sealed ones
                found[id] = (parts[id], _known(form), revision)
        return found


@functools.cache
def append_statement(engine: str, entries: int, slots: int, sets: tuple[str, ...] = (), *, guarded: bool = False) -> str:
    """The UPDATE that appends so many entries and slots, without the index's rows.

    Parameters in order: the entries' and slots' texts, their bytes twice, the format they need twice,
    update_time, update_date, a value for each of `sets`, id, tenant_id and, if guarded, the revision.
    """
    join = ", ".join if engine == "postgres" else "".join
    return APPEND[engine] % {
        "entries": join(APPEND_ENTRY[engine] % position for position in range(entries)),
        "slots": join([APPEND_SLOT[engine]] * slots),
        "counters": APPEND_COUNTERS % {
            "count": entries, "sets": "".join(f", {assignment}" for assignment in sets),
            "unless": " AND revision = %s" if guarded else "",
        },
    }


def _forget(id: str, which: str, value: Any) -> None:
    """Drop index rows, and the ended runs of their turns: a question asked again under its old id is new."""
    turns = f"SELECT message_id FROM {{message_index}} WHERE conversation_id = %s AND {which}"
    runs = f"SELECT id FROM {{run}} WHERE conversation_id = %s AND turn_id IN ({turns})"
    change(f"DELETE FROM {{run_event}} WHERE run_id IN ({runs})", [id, id, value])
    change(f"DELETE FROM {{run}} WHERE id IN ({runs})", [id, id, value])
    change(f"DELETE FROM {{message_index}} WHERE conversation_id = %s AND {which}", [id, value])


def _before(entries: list[Entry], slots: list[Slot], seq: int) -> tuple[list[Entry], list[Slot]]:
    gone = {entry.get("id") for entry in entries if entry["seq"] >= seq}
    return (
        [entry for entry in entries if entry["seq"] < seq],
        [slot for slot in slots if slot["message_id"] not in gone],
    )


def _with_uid(entry: Entry) -> Entry:
    kept = {key: value for key, value in entry.items() if key != "seq"}
    return kept if kept.get("uid") else kept | {"uid": new_id()}


def _index_rows(entries: Sequence[Entry]) -> list[tuple[str, str | None, str]]:
    return [(entry["uid"], entry.get("id"), entry["role"]) for entry in entries]


def _format(entries: Sequence[Entry]) -> int:
    """1 where RAGFlow's wire can show each entry as it stands, else 2."""
    plain = all(
        entry["role"] in _RAGFLOW_ROLES and isinstance(entry["content"], str) and not entry.get("hidden")
        and not entry.get("tool_calls")
        for entry in entries
    )
    return 1 if plain else 2


def _known(form: int) -> int:
    if form > NEWEST_FORMAT:
        raise DocumentTooNew(f"a newer release wrote this session (format {form}); upgrade to read it")
    return form


def _paginate(groups: list[LegacyTurn], limit: int) -> list[tuple[list[Entry], list[Slot]]]:
    """Pages of whole turns, each closed by the turn that took it over the limit; the last one is open."""
    pages: list[tuple[list[Entry], list[Slot]]] = []
    length = limit + 1
    for group in groups:
        if length > limit:
            pages.append(([], []))
            length = 0
        slots = [group.slot] if group.slot else []
        pages[-1][0].extend(group.entries)
        pages[-1][1].extend(slots)
        length += size([*group.entries, *slots])
    return pages


def _parse(parts: list[tuple[str, str]], form: int, revision: int) -> Loaded:
    entries = [entry for message, _ in parts for entry in loads(message)]
    slots = [slot for _, reference in parts for slot in loads(reference)]
    if form == 0:
        groups = mend(entries, slots)
        entries = [entry for group in groups for entry in group.entries]
        slots = [group.slot for group in groups if group.slot]
    return Loaded(entries, slots, form, revision)


def _page_limit() -> int:
    return int(database.obj.limits.page_bytes)


CONVERSATIONS = PagedDocument(Conversation)
API4_CONVERSATIONS = PagedDocument(API4Conversation)
