"""What goes into a document and comes out of it, and the pure rules about its parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from db.ids import new_id
from db.jsontext import dumps, loads, size
from db.legacy import LegacyTurn, mend

Entry = dict[str, Any]
Slot = dict[str, Any]
Change = Callable[[list[Entry], list[Slot]], tuple[list[Entry], list[Slot]]]

NEWEST_FORMAT = 2
ROLE_LENGTH = 32  # characters of a role that the index has room for
_RAGFLOW_ROLES = ("user", "assistant")
_BATCH = 30  # values a statement: both engines limit a function's arguments


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


class Addition:
    """Entries and slots to append in one statement. `length` counts the UTF-8 bytes of their JSON."""

    def __init__(self, entries: Sequence[Entry], slots: Sequence[Slot]) -> None:
        self.entries, self.slots = entries, slots
        self.texts = [dumps(value) for value in (*entries, *slots)]
        self.length = sum(len(text.encode()) for text in self.texts)
        self.format = format_of(entries)
        self.questions = sum(entry["role"] == "user" for entry in entries)
        self.only_answers = bool(slots) and not self.questions  # what it belongs to is in the open page
        self.closing = self.length if slots else 0  # what a turn that ends must find free in the open page


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
    """A whole document as JSON text in UTF-8, page by page, so that nobody copies it whole to write it out."""

    pages: list[tuple[bytes, bytes]]
    format: int

    def array(self, column: int) -> bytes:
        """One of the two arrays: 0 the messages, 1 the references."""
        return b"".join(self.pieces(column))

    def pieces(self, column: int) -> Iterator[bytes | memoryview]:
        """The same in pieces, none of which is copied."""
        separator = b"["
        for text in (page[column] for page in self.pages if page[column] != b"[]"):
            yield separator
            yield memoryview(text)[1:-1]
            separator = b","
        yield b"]" if separator == b"," else b"[]"

    def parsed(self) -> Loaded:
        return parse(self.pages, self.format, 0)


def before(entries: list[Entry], slots: list[Slot], seq: int) -> tuple[list[Entry], list[Slot]]:
    gone = {entry.get("id") for entry in entries if entry["seq"] >= seq}
    return (
        [entry for entry in entries if entry["seq"] < seq],
        [slot for slot in slots if slot["message_id"] not in gone],
    )


def with_uid(entry: Entry) -> Entry:
    kept = {key: value for key, value in entry.items() if key != "seq"}
    return kept if kept.get("uid") else kept | {"uid": new_id()}


def index_rows(entries: Sequence[Entry]) -> list[tuple[str, str | None, str]]:
    return [(entry["uid"], entry.get("id"), entry["role"][:ROLE_LENGTH]) for entry in entries]


def format_of(entries: Sequence[Entry]) -> int:
    """1 where RAGFlow's wire can show each entry as it stands, else 2."""
    plain = all(
        entry["role"] in _RAGFLOW_ROLES and isinstance(entry["content"], str) and not entry.get("hidden")
        and not entry.get("tool_calls")
        for entry in entries
    )
    return 1 if plain else 2


def known(form: int) -> int:
    if form > NEWEST_FORMAT:
        raise DocumentTooNew(f"a newer release wrote this session (format {form}); upgrade to read it")
    return form


def paginate(groups: list[LegacyTurn], limit: int) -> list[tuple[list[Entry], list[Slot]]]:
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


def parse(parts: list[tuple[bytes, bytes]], form: int, revision: int) -> Loaded:
    entries = [entry for message, _ in parts for entry in loads(message)]
    slots = [slot for _, reference in parts for slot in loads(reference)]
    if form == 0:
        groups = mend(entries, slots)
        entries = [entry for group in groups for entry in group.entries]
        slots = [group.slot for group in groups if group.slot]
    return Loaded(entries, slots, form, revision)


def batches(entries: Sequence[Entry], slots: Sequence[Slot]) -> Iterator[tuple[Sequence[Entry], Sequence[Slot]]]:
    """Appends of bounded size: the entries first, the slots with the last of them and after."""
    last = max((len(entries) - 1) // _BATCH, 0) * _BATCH
    for at in range(0, last, _BATCH):
        yield entries[at : at + _BATCH], ()
    yield entries[last:], slots[:_BATCH]
    for at in range(_BATCH, len(slots), _BATCH):
        yield (), slots[at : at + _BATCH]


def settled(entries: list[Entry], slots: list[Slot], running: set[str]) -> int:
    """How many entries may be sealed although a question among them has no answer: whole turns, from the
    start, up to the first that is being answered or that is the last one and unanswered."""
    answered = {slot["message_id"] for slot in slots}
    last = next((entry.get("id") for entry in reversed(entries) if entry["role"] == "user"), None)
    open_turns = running | ({last} if last not in answered else set())
    return next((at for at, entry in enumerate(entries) if entry.get("id") in open_turns), len(entries))
