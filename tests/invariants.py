"""What must hold of a stored document whatever was done to it, recomputed from its rows without the store's code."""

from typing import Any

import orjson

from db.database import fetch
from db.document import CONVERSATIONS, PagedDocument

COUNTERS = "next_seq, message_count, page_count, open_bytes, document_bytes, revision, format"


def counters(id: str, document: PagedDocument = CONVERSATIONS) -> dict[str, int]:
    [row] = fetch(f"SELECT {COUNTERS} FROM {{{document.table}}} WHERE id = %s", [id])
    return dict(zip(COUNTERS.split(", "), row, strict=True))


def stored_pages(id: str, document: PagedDocument = CONVERSATIONS) -> list[tuple[list[Any], list[Any]]]:
    """Entries and slots of each page, the open one last."""
    table = document.table
    sealed = fetch(f"""SELECT CAST(message AS text), CAST(reference AS text) FROM {{{table}_page}}
        WHERE conversation_id = %s ORDER BY first_seq""", [id])
    row = fetch(f"SELECT CAST(message AS text), CAST(reference AS text) FROM {{{table}}} WHERE id = %s", [id])
    return [(orjson.loads(message), orjson.loads(reference)) for message, reference in [*sealed, *row]]


def index_rows(id: str) -> list[tuple[Any, ...]]:
    return fetch("""SELECT seq, uid, message_id, role FROM {message_index}
        WHERE conversation_id = %s ORDER BY seq""", [id])


def bytes_of(entries: list[Any], slots: list[Any]) -> int:
    kept = [{key: value for key, value in item.items() if key != "seq"} for item in [*entries, *slots]]
    return sum(len(orjson.dumps(item)) for item in kept)


def turn_ids(entries: list[Any]) -> list[str]:
    """The ids of turns in order, each once."""
    return list(dict.fromkeys(entry["id"] for entry in entries if "id" in entry))


def ended_turns(entries: list[Any]) -> list[str]:
    answered = {entry.get("id") for entry in entries if entry["role"] == "assistant"}
    return [turn_id for turn_id in turn_ids(entries) if turn_id in answered]


def assert_sound(
    id: str, document: PagedDocument = CONVERSATIONS, *, limit: int | None = None, imported: bool = False
) -> None:
    """Counters, page bounds, order, ids, index and slots agree with what is stored.

    With `limit`, no page holds a turn that it could have left to the next one. A turn that was
    imported has ended, even if nobody answered it.
    """
    pages = stored_pages(id, document)
    entries = [entry for page, _ in pages for entry in page]
    counted = counters(id, document)
    assert counted["message_count"] == len(entries)
    assert counted["page_count"] == len(pages) - 1
    assert counted["open_bytes"] == bytes_of(*pages[-1])
    assert counted["document_bytes"] == sum(bytes_of(*page) for page in pages)
    _assert_page_rows(id, document, pages[:-1])
    _assert_order(entries, counted["next_seq"])
    assert index_rows(id) == [(e["seq"], e["uid"], e.get("id"), e["role"][:32]) for e in entries]
    for page_entries, slots in pages:
        ended = turn_ids(page_entries) if imported else ended_turns(page_entries)
        assert [slot["message_id"] for slot in slots] == ended, "a slot isn't with its turn"
    if limit is not None:
        _assert_no_page_too_large(pages, limit)


def _assert_page_rows(id: str, document: PagedDocument, sealed: list[tuple[list[Any], list[Any]]]) -> None:
    rows = fetch(f"""SELECT first_seq, last_seq, message_count, page_bytes FROM {{{document.table}_page}}
        WHERE conversation_id = %s ORDER BY first_seq""", [id])
    assert rows == [
        (page[0]["seq"], page[-1]["seq"], len(page), bytes_of(page, slots)) for page, slots in sealed
    ]


def _assert_order(entries: list[Any], next_seq: int) -> None:
    seqs = [entry["seq"] for entry in entries]
    assert seqs == sorted(set(seqs)), "seq rises"
    assert not seqs or seqs[-1] < next_seq
    uids = [entry["uid"] for entry in entries]
    assert all(uids) and len(set(uids)) == len(uids), "uids are unique"
    ids = [entry["id"] for entry in entries if "id" in entry]
    changes = [ids[i] for i in range(len(ids)) if i == 0 or ids[i] != ids[i - 1]]
    assert len(changes) == len(set(changes)), "a turn's entries stand together"


def _assert_no_page_too_large(pages: list[tuple[list[Any], list[Any]]], limit: int) -> None:
    for entries, slots in pages:
        last = turn_ids(entries)[-1:]
        kept = [entry for entry in entries if entry.get("id") not in last]
        assert bytes_of(kept, [slot for slot in slots if slot["message_id"] not in last]) <= limit
