"""Arrays as another system wrote them: every shape is read right, nothing non-empty is dropped.

RAGFlow ties the n-th reference to the n-th question by counting, and each of its versions counted
differently. `mend` gives each turn its own slot; db/document stores the result at the first write.
"""

from dataclasses import dataclass, field
from typing import Any

from db.ids import new_id
from db.jsontext import loads

Entry = dict[str, Any]
Slot = dict[str, Any]

# Each key of a chunk on the wire, with the names under which stores keep it; the first that is there wins.
CHUNK_KEYS = {
    "id": ("chunk_id", "id"),
    "content": ("content", "content_with_weight"),
    "document_id": ("doc_id", "document_id"),
    "document_name": ("docnm_kwd", "document_name"),
    "dataset_id": ("kb_id", "dataset_id"),
    "image_id": ("image_id", "img_id"),
    "positions": ("positions", "position_int"),
    "url": ("url",),
    "similarity": ("similarity",),
    "vector_similarity": ("vector_similarity",),
    "term_similarity": ("term_similarity",),
    "row_id": ("row_id",),
    "doc_type": ("doc_type_kwd", "doc_type"),
    "document_metadata": ("document_metadata",),
}


def format_chunk(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk in wire form: always the same 14 keys, null where unknown. Idempotent."""
    return {
        key: next((chunk[name] for name in names if name in chunk), None) for key, names in CHUNK_KEYS.items()
    }


def empty_slot(message_id: str | None) -> Slot:
    return {"message_id": message_id, "chunks": [], "doc_aggs": []}


def arrays(message: Any, reference: Any) -> tuple[list[Any], list[Any]]:
    """Both columns as arrays, whatever they were: NULL, text, `{}`, an object, chunks as a map."""
    return _array(message), _array(reference)


def _array(value: Any) -> list[Any]:
    if isinstance(value, str | bytes):
        value = _loaded(value)
        if isinstance(value, str):
            return [value]
    if isinstance(value, list):
        return value
    return [value] if value else []


def _loaded(text: str | bytes) -> Any:
    """The value of a JSON text; words that are no JSON stand for themselves."""
    if not text.strip():
        return None
    try:
        return loads(text)
    except ValueError:
        return text if isinstance(text, str) else text.decode(errors="replace")


@dataclass
class LegacyTurn:
    """A question with what follows it; the first group of a document may have no question (its prologue)."""

    entries: list[Entry] = field(default_factory=list)
    slot: Slot | None = None

    @property
    def id(self) -> str | None:
        found = self.entries[0].get("id")
        return found if isinstance(found, str) and found else None


def mend(message: list[Any], reference: list[Any]) -> list[LegacyTurn]:
    """The turns of another system's arrays, each with its own slot; the prologue's has none.

    A slot that names its turn goes there; the others go by position, a leading placeholder skipped
    where there is one too many, the last one to the last turn where there are more still (those
    between are kept in its `surplus`: nobody can say whose they were).
    """
    groups = _group([_entry(item) for item in message if item])
    turns = [group for group in groups if group.entries[0]["role"] == "user"]
    slots = [_slot(item) for item in reference]
    while len(slots) > len(turns) and _is_empty(slots[0]):
        slots = slots[1:]
    if len(slots) > len(turns) > 0:
        last = len(turns) - 1
        slots = [*slots[:last], slots[-1] | {"surplus": slots[last:-1]}]
    for position, turn in enumerate(turns):
        turn.slot = _slot_of(turn.id, position, slots) | {"message_id": turn.id}
    return groups


def _slot_of(turn_id: str | None, position: int, slots: list[Slot]) -> Slot:
    """The slot at this position, unless it names another turn; else the first one that names this turn."""
    placed = slots[position] if position < len(slots) else empty_slot(None)
    if placed["message_id"] in (None, turn_id):
        return placed
    return next((slot for slot in slots if turn_id and slot["message_id"] == turn_id), empty_slot(None))


def adopt(groups: list[LegacyTurn]) -> list[LegacyTurn]:
    """The same turns with an id a turn, a uid an entry and a seq from 1: what the first write stores."""
    seq, turn_ids, uids = 0, set[str](), set[str]()
    for group in groups:
        is_turn = group.slot is not None
        given = group.id
        turn_id = given if given and _is_new(given, turn_ids) else new_id()
        turn_ids.add(turn_id)
        for entry in group.entries:
            seq += 1
            own = (entry.get("uid"), entry.get("id"))
            uid = next((name for name in own if isinstance(name, str) and _is_new(name, uids)), None) or new_id()
            uids.add(uid)
            entry.update(uid=uid, seq=seq)
            entry.pop("id", None)
            if is_turn:
                entry["id"] = turn_id
        if group.slot is not None:
            group.slot["message_id"] = turn_id
    return groups


def _is_new(name: str, uids: set[str]) -> bool:
    return 0 < len(name) <= 255 and name not in uids


def _group(entries: list[Entry]) -> list[LegacyTurn]:
    groups: list[LegacyTurn] = []
    for entry in entries:
        if entry["role"] == "user" or not groups:
            groups.append(LegacyTurn())
        groups[-1].entries.append(entry)
    return groups


def _entry(item: Any) -> Entry:
    entry = dict(item) if isinstance(item, dict) else {"content": item}
    role = entry.get("role")
    content = entry.get("content")
    return entry | {
        "role": role if isinstance(role, str) and role else "assistant",
        "content": "" if content is None else content,
    }


def _slot(item: Any) -> Slot:
    if isinstance(item, list):
        item = {"chunks": item}
    slot = dict(item) if isinstance(item, dict) else {}
    name = slot.get("message_id")
    return slot | {
        "message_id": name if isinstance(name, str) and name else None,
        "chunks": [format_chunk(chunk) for chunk in _values(slot.get("chunks")) if isinstance(chunk, dict)],
        "doc_aggs": _values(slot.get("doc_aggs")),
    }


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _is_empty(slot: Slot) -> bool:
    return not slot["chunks"] and not slot["doc_aggs"] and not slot["message_id"]
