"""Rows as RAGFlow wrote them: read right as they stand, and mended by the first write."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from db.database import connection, transaction
from db.document import API4_CONVERSATIONS, CONVERSATIONS, Loaded, PagedDocument
from db.legacy import CHUNK_KEYS, format_chunk
from services.messages import adopt
from tests.invariants import assert_sound, counters, stored_pages

TENANT = "acme"


@pytest.fixture
def held(store):
    with connection():
        yield store


def said(name: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"question {name}", **more},
            {"role": "assistant", "content": f"answer {name}", **more}]


def slot(*names: str, **more: Any) -> dict[str, Any]:
    """A reference as RAGFlow stores it: its own names for a chunk's keys."""
    chunks = [{"chunk_id": name, "content_with_weight": f"passage {name}", "docnm_kwd": f"{name}.md", "doc_id": "d",
               "kb_id": "kb", "similarity": 0.5} for name in names]
    return {"total": len(chunks), "chunks": chunks, "doc_aggs": [], **more}


PROLOGUE = {"role": "assistant", "content": "Hi! I'm your assistant."}
TWO = [PROLOGUE, *said("1", id="m1"), *said("2", id="m2")]

# Each shape: what stands in the two columns, and the chunks that each turn shows.
SHAPES: dict[str, tuple[list[Any], list[Any], list[list[str]]]] = {
    "as many slots as turns": (TWO, [slot("a"), slot("b")], [["a"], ["b"]]),
    "a leading {}": (TWO, [{}, slot("a"), slot("b")], [["a"], ["b"]]),
    "a leading null": (TWO, [None, slot("a"), slot("b")], [["a"], ["b"]]),
    "a leading empty slot": (TWO, [slot(), slot("a"), slot("b")], [["a"], ["b"]]),
    "two leading {}": (TWO, [{}, {}, slot("a"), slot("b")], [["a"], ["b"]]),
    "the first turn without chunks": (TWO, [{}, slot("b")], [[], ["b"]]),
    "a placeholder, and the first turn without chunks": (TWO, [{}, slot(), slot("b")], [[], ["b"]]),
    "a placeholder alone, no turn": ([PROLOGUE], [{}], []),
    "a placeholder alone, one turn": ([PROLOGUE, *said("1")], [{}], [[]]),
    "no slot": (TWO, [], [[], []]),
    "one slot": (TWO, [slot("a")], [["a"], []]),
    "a null slot": (TWO, [slot("a"), None], [["a"], []]),
    "a null in between": ([*TWO, *said("3")], [slot("a"), None, slot("c")], [["a"], [], ["c"]]),
    "a list for a slot": (TWO, [slot("a")["chunks"], slot("b")], [["a"], ["b"]]),
    "chunks as a map": (TWO, [slot("a") | {"chunks": {"a": slot("a")["chunks"][0]}}, slot("b")], [["a"], ["b"]]),
    "chunks null": (TWO, [slot() | {"chunks": None, "doc_aggs": None}, slot("b")], [[], ["b"]]),
    "no ids": ([PROLOGUE, *said("1"), *said("2")], [slot("a"), slot("b")], [["a"], ["b"]]),
    "ids null and empty": ([*said("1", id=None), *said("2", id="")], [slot("a"), slot("b")], [["a"], ["b"]]),
    "ids that are numbers": ([*said("1", id=1), *said("2", id=2)], [slot("a"), slot("b")], [["a"], ["b"]]),
    "repeated ids": ([*said("1", id="x"), *said("2", id="x")], [slot("a"), slot("b")], [["a"], ["b"]]),
    "repeated ids in both columns": (
        [*said("1", id="x"), *said("2", id="x")], [slot("a", message_id="x"), slot("b", message_id="x")],
        [["a"], ["b"]],
    ),
    "very long ids": ([*said("1", id="x" * 300), *said("2", id="x" * 300)], [slot("a"), slot("b")], [["a"], ["b"]]),
    "ids with a NUL": ([*said("1", id="x\x00"), *said("2", id="x")], [slot("a"), slot("b")], [["a"], ["b"]]),
    "slots that name their turns": (
        TWO, [slot("b", message_id="m2"), slot("a", message_id="m1")], [["a"], ["b"]],
    ),
    "no prologue": (TWO[1:], [slot("a"), slot("b")], [["a"], ["b"]]),
    "a prologue with an id": ([PROLOGUE | {"id": "p"}, *TWO[1:]], [slot("a"), slot("b")], [["a"], ["b"]]),
    "a prologue with the first turn's id": (
        [PROLOGUE | {"id": "m1"}, *TWO[1:]], [slot("a"), slot("b")], [["a"], ["b"]],
    ),
    "two opening lines": ([PROLOGUE, PROLOGUE, *TWO[1:]], [slot("a"), slot("b")], [["a"], ["b"]]),
    "a dangling question at the end": ([*TWO, said("3")[0]], [slot("a"), slot("b")], [["a"], ["b"], []]),
    "a dangling question with its slot": ([*TWO, said("3")[0]], [slot("a"), slot("b"), slot()], [["a"], ["b"], []]),
    "a dangling question in between": (
        [said("1")[0], *said("2")], [slot(), slot("b")], [[], ["b"]],
    ),
    "null and empty entries": ([None, PROLOGUE, {}, *TWO[1:3], None, *TWO[3:]], [slot("a"), slot("b")], [["a"], ["b"]]),
    "entries with seq and uid of their own": (
        [*said("1", seq=9, uid="u"), *said("2", seq=9, uid="u")], [slot("a"), slot("b")], [["a"], ["b"]],
    ),
    "content null, a list and an object": (
        [{"role": "user", "content": None}, {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
         {"role": "user", "content": {"a": 1}}, {"role": "assistant"}], [slot("a"), slot("b")], [["a"], ["b"]],
    ),
    "roles unknown, missing and very long": (
        [*said("1"), {"role": "r" * 50, "content": "x"}, {"content": "y"}, {"role": None, "content": "z"}],
        [slot("a")], [["a"]],
    ),
    "nothing": ([], [], []),
    "messages only": ([PROLOGUE], [], []),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def legacy(message: list[Any], reference: list[Any], document: PagedDocument = CONVERSATIONS) -> str:
    return document.row.create(
        tenant_id=TENANT, dialog_id="chat", format=0, next_seq=0, message=message, reference=reference
    ).id


def turns(whole: Loaded) -> list[list[Any]]:
    """The document's entries, a list a question."""
    found: list[list[Any]] = []
    for entry in whole.entries:
        if entry["role"] == "user":
            found.append([])
        if found:
            found[-1].append(entry)
    return found


def chunks_of(slots: list[Any]) -> list[list[str]]:
    return [[chunk["id"] for chunk in slot["chunks"]] for slot in slots]


def contents(whole: Loaded) -> list[tuple[str, Any]]:
    return [(entry["role"], entry["content"]) for entry in whole.entries]


def expected_contents(message: list[Any]) -> list[tuple[str, Any]]:
    entries = [item for item in message if item]
    return [
        (item.get("role") or "assistant", "" if item.get("content") is None else item["content"]) for item in entries
    ]


class TestReadAsItStands:
    @shapes
    def test_every_turn_has_its_own_chunks(self, held, shape) -> None:
        message, reference, chunks = shape
        id = legacy(message, reference)
        for whole in (CONVERSATIONS.load(TENANT, id), CONVERSATIONS.load_text(TENANT, id).parsed()):
            assert contents(whole) == expected_contents(message)
            assert chunks_of(whole.slots) == chunks
            assert len(turns(whole)) == len(chunks)
            assert all(set(chunk) == set(CHUNK_KEYS) for slot in whole.slots for chunk in slot["chunks"])
        assert counters(id)["revision"] == 0, "reading writes nothing"

    def test_one_odd_row_does_not_break_the_others(self, held) -> None:
        ids = {legacy(message, reference): 1 for message, reference, _ in SHAPES.values()}
        [batch] = CONVERSATIONS.load_texts(TENANT, ids)
        assert [chunks_of(batch[id].parsed().slots) for id in ids] == [chunks for _, _, chunks in SHAPES.values()]

    @pytest.mark.parametrize("surplus", [[slot("x"), slot("y"), slot("z")], [slot("x"), slot("y"), slot("z"), {}]])
    def test_more_slots_than_turns_lose_no_chunk(self, held, surplus: list[Any]) -> None:
        whole = CONVERSATIONS.load(TENANT, legacy(TWO, surplus))
        kept = [*whole.slots, *whole.slots[-1]["surplus"]]
        assert sorted(name for names in chunks_of(kept) for name in names) == ["x", "y", "z"]


WRITES: dict[str, Callable[[PagedDocument, str], Any]] = {
    "append": lambda document, id: document.append(
        TENANT, id, [{"role": "user", "content": "question new", "id": "new", "uid": "new"},
                     {"role": "assistant", "content": "answer new", "id": "new"}],
        [{"message_id": "new", "chunks": [format_chunk({"id": "n"})], "doc_aggs": []}],
    ),
    "search by turn": lambda document, id: document.find_turn(TENANT, id, "nowhere"),
    "delete of an unknown turn": lambda document, id: document.delete_turn(TENANT, id, "nowhere"),
    "rewind to nowhere": lambda document, id: document.rewind(TENANT, id, 99999),
}


class TestMendedByTheFirstWrite:
    @shapes
    @pytest.mark.settings(document={"page_bytes": 700})
    def test_everything_is_in_place_whatever_that_write_is(self, held, shape) -> None:
        for name, write in WRITES.items():
            id = legacy(*shape[:2])
            write(CONVERSATIONS, id)
            self.assert_in_place(id, shape, new=name == "append")

    def assert_in_place(self, id: str, shape, *, new: bool) -> None:
        message, _, chunks = shape
        whole = CONVERSATIONS.load(TENANT, id)
        assert contents(whole)[: len(whole.entries) - 2 * new] == expected_contents(message)
        assert chunks_of(whole.slots) == [*chunks, *[["n"]] * new]
        assert [entry["seq"] for entry in whole.entries] == list(range(1, len(whole.entries) + 1))
        starts = [turn[0]["id"] for turn in turns(whole)]
        assert [slot["message_id"] for slot in whole.slots] == starts
        assert all(entry["id"] == turn[0]["id"] for turn in turns(whole) for entry in turn)
        assert whole.format in (1, 2)
        assert_sound(id, imported=True, limit=700)

    @shapes
    def test_the_other_table_is_mended_alike(self, held, shape) -> None:
        message, reference, chunks = shape
        id = legacy(message, reference, API4_CONVERSATIONS)
        WRITES["append"](API4_CONVERSATIONS, id)
        assert chunks_of(API4_CONVERSATIONS.load(TENANT, id).slots) == [*chunks, ["n"]]

    @shapes
    def test_a_second_write_finds_nothing_to_mend(self, held, shape) -> None:
        id = legacy(*shape[:2])
        for _ in range(2):
            with transaction():
                CONVERSATIONS.ensure_adopted(TENANT, id)
        once = CONVERSATIONS.load(TENANT, id)
        assert once.revision == 1

    def test_the_first_entries_keep_their_own_names(self, held) -> None:
        id = legacy(TWO, [])
        WRITES["append"](CONVERSATIONS, id)
        prologue, *entries = CONVERSATIONS.load(TENANT, id).entries
        assert "id" not in prologue
        assert [entry["id"] for entry in entries] == ["m1", "m1", "m2", "m2", "new", "new"]
        assert [entry["uid"] for entry in entries[::2]] == ["m1", "m2", "new"]

    def test_a_turn_can_be_deleted_with_its_own_slot(self, held) -> None:
        id = legacy(TWO, [{}, slot("a"), slot("b")])
        assert CONVERSATIONS.delete_turn(TENANT, id, "m1")
        whole = CONVERSATIONS.load(TENANT, id)
        assert [content for _, content in contents(whole)] == [PROLOGUE["content"], "question 2", "answer 2"]
        assert chunks_of(whole.slots) == [["b"]]
        assert_sound(id)

    def test_a_question_under_a_turn_id_that_it_holds_is_found(self, held) -> None:
        id = legacy(TWO, [])
        assert CONVERSATIONS.find_turn(TENANT, id, "m2") == 4

    def test_four_megabytes_become_small_pages(self, held) -> None:
        names = [str(n) for n in range(700)]
        message = [PROLOGUE, *(entry for name in names for entry in said(name, note="n" * 2800))]
        id = legacy(message, [{}, *(slot(f"c{name}") for name in names)])
        began = time.monotonic()
        WRITES["append"](CONVERSATIONS, id)
        assert time.monotonic() - began < 5
        assert counters(id)["document_bytes"] > 4_000_000
        assert len(stored_pages(id)) > 200
        assert chunks_of(CONVERSATIONS.load(TENANT, id).slots) == [*([f"c{name}"] for name in names), ["n"]]
        assert_sound(id, limit=16_384)


class TestAdopt:
    @pytest.mark.parametrize(("found", "array"), [
        (None, []), ("", []), ("  ", []), ("{}", []), ({}, []), ("null", []), ("[]", []), ([], []), (b"[1]", [1]),
        ('[{"a": 1}]', [{"a": 1}]), ([{"a": 1}], [{"a": 1}]), ({"a": 1}, [{"a": 1}]), ('{"a": 1}', [{"a": 1}]),
        ('"words"', ["words"]), ("just words", ["just words"]), ("[broken", ["[broken"]), ([None, {}], [None, {}]),
    ])
    def test_makes_an_array_of_every_shape(self, found: Any, array: list[Any]) -> None:
        assert adopt(found, None) == (array, [])
        assert adopt(None, found) == ([], array)

    @pytest.mark.parametrize("reference", [
        {"chunks": {"c1": {"id": "c1"}, "c2": {"id": "c2"}}, "doc_aggs": {"a.md": {"doc_name": "a.md", "count": 2}}},
        '{"chunks": {"c1": {"id": "c1"}, "c2": {"id": "c2"}}, "doc_aggs": {"a.md": {"doc_name": "a.md", "count": 2}}}',
        [{"chunks": [{"id": "c1"}, {"id": "c2"}], "doc_aggs": [{"doc_name": "a.md", "count": 2}]}],
    ], ids=["object", "text", "array of one"])
    def test_keeps_an_agent_sessions_one_reference(self, held, reference: Any) -> None:
        id = legacy(*adopt(said("1"), reference), API4_CONVERSATIONS)
        for write in (None, *WRITES):
            if write:
                WRITES[write](API4_CONVERSATIONS, id) if write != "append" else None
            [kept] = API4_CONVERSATIONS.load(TENANT, id).slots
            assert chunks_of([kept]) == [["c1", "c2"]]
            assert kept["doc_aggs"] == [{"doc_name": "a.md", "count": 2}]


class TestAChunk:
    def test_keeps_its_form_however_often_it_is_formatted(self) -> None:
        once = format_chunk(slot("a")["chunks"][0])
        assert format_chunk(once) == once
        assert (once["id"], once["content"], once["document_name"]) == ("a", "passage a", "a.md")

    def test_keeps_false_zero_and_null_that_a_first_name_holds(self) -> None:
        assert format_chunk({"similarity": 0, "content": ""})["similarity"] == 0
        assert format_chunk({"chunk_id": None, "id": "x"})["id"] is None
