"""Reading documents: each read is one statement, so one snapshot, whoever writes meanwhile."""

from collections.abc import Iterator, Mapping, Sequence

from db.database import database, fetch
from db.document.statements import IN_RANGE, READ
from db.document.values import DocumentMissing, DocumentText, Loaded, PageRow, known, parse
from db.models import DocumentRow


class DocumentReader:
    """Reads the documents of one table."""

    def __init__(self, row: type[DocumentRow]) -> None:
        self.row = row
        self.table: str = row._meta.table_name

    def _sql(self, statement: str) -> str:
        return statement.replace("{table}", "{%s}" % self.table).replace("{page}", "{%s_page}" % self.table)

    def load(self, tenant_id: str, id: str) -> Loaded:
        """The whole document. Raises DocumentMissing."""
        parts, form, revision = self._read(tenant_id, id)
        return parse(parts, form, revision)

    def load_range(self, tenant_id: str, id: str, first: int, last: int) -> Loaded:
        """The entries with first <= seq <= last and the slots of their turns, from their pages alone."""
        parts, form, revision = self._read(tenant_id, id, (first, last))
        whole = parse(parts, form, revision)
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
    ) -> tuple[list[tuple[bytes, bytes]], int, int]:
        found = self._read_many(tenant_id, [id], within)
        if id not in found:
            raise DocumentMissing(id)
        return found[id]

    def _read_many(
        self, tenant_id: str, ids: Sequence[str], within: tuple[int, int] | None = None
    ) -> dict[str, tuple[list[tuple[bytes, bytes]], int, int]]:
        marks = ", ".join(["%s"] * len(ids))
        statement = READ % {"ids": marks, "pages": IN_RANGE if within else ""}
        between = [within[1], ids[0], within[0]] if within else []
        rows = sorted(fetch(self._sql(statement), [*ids, *between, *ids, tenant_id]), key=lambda row: row[:2])
        found: dict[str, tuple[list[tuple[bytes, bytes]], int, int]] = {}
        parts: dict[str, list[tuple[bytes, bytes]]] = {}
        for id, _, message, reference, form, revision in rows:
            parts.setdefault(id, []).append((_utf8(message), _utf8(reference)))
            if form >= 0:  # the open page, after all the sealed ones
                found[id] = (parts[id], known(form), revision)
        return found

    def first_seq(self, id: str, turn_id: str) -> int | None:
        """Where a turn begins; None where no entry has this turn id."""
        [(seq,)] = fetch(
            "SELECT min(seq) FROM {message_index} WHERE conversation_id = %s AND message_id = %s", [id, turn_id]
        )
        return None if seq is None else int(seq)


def _utf8(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
