"""What is derived from a document is made anew from it, under the row's lock: counters and index."""

from dataclasses import dataclass

from db.database import change, fetch, transaction
from db.document.writing import DocumentWriter
from db.jsontext import loads, size


@dataclass(frozen=True, slots=True)
class _Held:
    """What a page holds: its entries, the bytes of entries and slots, the last seq."""

    entries: int
    length: int
    last: int

    @classmethod
    def of(cls, message: str, reference: str) -> "_Held":
        entries = loads(message)
        last = max((entry.get("seq") or 0 for entry in entries), default=0)
        return cls(len(entries), size([*entries, *loads(reference)]), last)


class DocumentMender(DocumentWriter):
    """The mends of one table's documents. What the entries and slots say is never changed."""

    def recount(self, tenant_id: str, id: str) -> None:
        """The row's counters and its pages' own from what they hold; `next_seq` only rises.

        Raises DocumentMissing, DocumentTooNew.
        """
        with transaction():
            next_seq, _ = self.lock(tenant_id, id)
            if next_seq == 0:
                return  # another system's arrays: the first write counts them
            sealed = self._recount_pages(id)
            [texts] = fetch(
                self._sql("SELECT CAST(message AS text), CAST(reference AS text) FROM {table} WHERE id = %s"), [id]
            )
            held = [*sealed, _Held.of(*texts)]
            change(
                self._sql("""UPDATE {table} SET next_seq = %s, message_count = %s, page_count = %s, open_bytes = %s,
                    document_bytes = %s, revision = revision + 1 WHERE id = %s"""),
                [max(next_seq, *(page.last + 1 for page in held)), sum(page.entries for page in held), len(sealed),
                 held[-1].length, sum(page.length for page in held), id],
            )

    def _recount_pages(self, id: str) -> list[_Held]:
        pages = fetch(
            self._sql("""SELECT first_seq, CAST(message AS text), CAST(reference AS text) FROM {page}
                WHERE conversation_id = %s"""), [id],
        )
        counted = {first_seq: _Held.of(*texts) for first_seq, *texts in pages}
        for first_seq, held in counted.items():
            change(
                self._sql("""UPDATE {page} SET message_count = %s, page_bytes = %s
                    WHERE conversation_id = %s AND first_seq = %s"""), [held.entries, held.length, id, first_seq],
            )
        return list(counted.values())

    def reindex(self, tenant_id: str, id: str) -> None:
        """Index rows from the entries. Nothing is done where a row has no entry, which may be one that was lost,
        or where entries can't be told apart. Raises DocumentMissing, DocumentTooNew."""
        with transaction():
            self.lock(tenant_id, id)
            entries = self.load(tenant_id, id).entries
            seqs, uids = ({entry.get(key) for entry in entries} - {None, ""} for key in ("seq", "uid"))
            indexed = {seq for (seq,) in fetch("SELECT seq FROM {message_index} WHERE conversation_id = %s", [id])}
            if not indexed <= seqs or not len(seqs) == len(uids) == len(entries):
                return
            change("DELETE FROM {message_index} WHERE conversation_id = %s", [id])
            for entry in entries:
                self._index(id, entry["seq"], [entry])
