"""Editing documents: one page is read, changed and written under the row's lock."""

from db.database import change, fetch, transaction
from db.document.mending import DocumentMender
from db.document.values import Change, Entry, Slot, before
from db.document.writing import forget
from db.jsontext import dumps, loads, size
from db.models import date_of, now_ms


class PagedDocument(DocumentMender):
    """The documents of one table, with all that can be done to them."""

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
            forget(id, "message_id = %s", turn_id)
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
            self._edit_page(id, first, lambda entries, slots: before(entries, slots, first), open_too=True)
            forget(id, "seq >= %s", first)
        return int(count)

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
