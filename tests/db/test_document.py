"""The paged document: appends, pages, ranges, edits, and counters that always agree with what is stored."""

import json
from typing import Any

import pytest
from peewee import DatabaseError, IntegrityError

from db.database import change, connection, dialect, fetch, transaction
from db.document import (
    API4_CONVERSATIONS,
    CONVERSATIONS,
    NEWEST_FORMAT,
    DocumentConflict,
    DocumentMissing,
    DocumentTooNew,
    PagedDocument,
)
from tests.fakes import chunk
from tests.invariants import assert_sound, counters, index_rows, stored_pages

TENANT = "acme"
TINY = pytest.mark.settings(document={"page_bytes": 900})
both_tables = pytest.mark.parametrize("document", [CONVERSATIONS, API4_CONVERSATIONS], ids=lambda d: d.table)


@pytest.fixture
def held(store):
    with connection():
        yield store


def new(document: PagedDocument = CONVERSATIONS, prologue: str = "") -> str:
    return document.create({"tenant_id": TENANT, "dialog_id": "chat", "name": "first"}, prologue).id


def turn(name: str, chunks: tuple[str, ...] = (), length: int = 20) -> tuple[list[Any], list[Any]]:
    """Question, answer and slot of a turn of this id."""
    question = {"role": "user", "content": f"question {name}", "id": name, "uid": name, "created_at": 1.5}
    answer = {"role": "assistant", "content": "a" * length, "id": name, "created_at": 2.5}
    slot = {"message_id": name, "chunks": [chunk(each) for each in chunks], "doc_aggs": []}
    return [question, answer], [slot]


def say(id: str, *names: str, document: PagedDocument = CONVERSATIONS, **more: Any) -> None:
    for name in names:
        document.append(TENANT, id, *turn(name, **more))


def names_of(id: str, document: PagedDocument = CONVERSATIONS) -> list[str]:
    return [entry["content"].split()[1] for entry in document.load(TENANT, id).entries if entry["role"] == "user"]


class TestANewDocument:
    def test_holds_the_prologue_outside_any_turn(self, held) -> None:
        id = new(prologue="Welcome.")
        whole = CONVERSATIONS.load(TENANT, id)
        [entry] = whole.entries
        assert (entry["role"], entry["content"], entry["seq"]) == ("assistant", "Welcome.", 1)
        assert "id" not in entry
        assert entry["uid"]
        assert (whole.slots, whole.format, counters(id)["next_seq"]) == ([], 1, 2)
        assert_sound(id)

    def test_without_prologue_holds_nothing(self, held) -> None:
        id = new()
        assert CONVERSATIONS.load(TENANT, id).entries == []
        assert counters(id) == {"next_seq": 1, "message_count": 0, "page_count": 0, "open_bytes": 0,
                                "document_bytes": 0, "revision": 0, "format": 1}

    def test_takes_a_prologue_with_text_that_no_database_takes(self, held) -> None:
        id = new(prologue="a\x00b\ud800")
        assert CONVERSATIONS.load(TENANT, id).entries[0]["content"] == "ab\ufffd"
        assert_sound(id)


class TestAppend:
    @both_tables
    def test_mints_seq_and_counts(self, held, document: PagedDocument) -> None:
        id = new(document, "Hi")
        appended = document.append(TENANT, id, *turn("t1", ("c1",)))
        assert (appended.first_seq, appended.revision) == (2, 1)
        assert [entry["seq"] for entry in document.load(TENANT, id).entries] == [1, 2, 3]
        assert_sound(id, document)

    def test_overwrites_a_seq_that_its_caller_sends(self, held) -> None:
        id = new()
        CONVERSATIONS.append(TENANT, id, [{"role": "user", "content": "q", "id": "t", "seq": 77}])
        assert CONVERSATIONS.load(TENANT, id).entries[0]["seq"] == 1
        assert_sound(id)

    def test_gives_an_entry_without_uid_one_and_keeps_a_given_one(self, held) -> None:
        id = new()
        say(id, "mine")
        first, second = CONVERSATIONS.load(TENANT, id).entries
        assert first["uid"] == "mine"
        assert second["uid"] not in (None, "", "mine")

    def test_keeps_the_keys_a_client_sent(self, held) -> None:
        id = new()
        sent = {"role": "user", "content": "q", "id": "t", "doc_ids": ["d"], "nested": {"a": None, "b": [1.25, "é"]}}
        CONVERSATIONS.append(TENANT, id, [sent])
        [entry] = CONVERSATIONS.load(TENANT, id).entries
        assert {key: entry[key] for key in sent} == sent

    def test_refuses_a_uid_that_the_document_holds_and_stores_nothing(self, held) -> None:
        id = new()
        say(id, "t1")
        before = counters(id)
        with pytest.raises(IntegrityError):
            say(id, "t1")
        assert counters(id) == before
        assert_sound(id)

    def test_takes_the_same_uid_in_another_document(self, held) -> None:
        first, second = new(), new()
        say(first, "t1")
        say(second, "t1")
        assert_sound(second)

    def test_takes_a_tools_whole_turn_at_once(self, held) -> None:
        id = new()
        tools = [{"role": "tool", "content": str(n), "id": "t1"} for n in range(70)]
        (question, answer), slots = turn("t1")
        CONVERSATIONS.append(TENANT, id, [question, *tools, answer], slots)
        assert [entry["seq"] for entry in CONVERSATIONS.load(TENANT, id).entries] == list(range(1, 73))
        assert_sound(id)

    def test_takes_more_turns_at_once_than_a_function_takes_arguments(self, held) -> None:
        id = new()
        turns = [turn(f"t{n}", (f"c{n}",)) for n in range(130)]
        CONVERSATIONS.append(
            TENANT, id, [entry for entries, _ in turns for entry in entries], [slot for _, [slot] in turns]
        )
        assert [slot["chunks"][0]["id"] for slot in CONVERSATIONS.load(TENANT, id).slots] == [
            f"c{n}" for n in range(130)
        ]
        assert_sound(id)

    def test_of_many_entries_is_stored_whole_or_not_at_all(self, held) -> None:
        id = new()
        entries = [{"role": "tool", "content": str(n), "id": "t1", "uid": f"u{n}"} for n in range(40)]
        entries[-1]["uid"] = "u0"
        with pytest.raises(IntegrityError):
            CONVERSATIONS.append(TENANT, id, entries)
        assert counters(id)["message_count"] == 0
        assert_sound(id)

    def test_changes_the_rows_own_columns_in_the_same_update(self, held) -> None:
        id = new(API4_CONVERSATIONS)
        for n in range(2):
            API4_CONVERSATIONS.append(
                TENANT, id, *turn(f"t{n}"), add={"round": 1, "duration": 0.5}, put={"errors": f"E{n}"}
            )
        assert fetch("SELECT round, duration, errors FROM {api_4_conversation} WHERE id = %s", [id]) == [(2, 1.0, "E1")]

    @both_tables
    @pytest.mark.parametrize("owner", [TENANT, "stranger"])
    def test_to_a_missing_row_or_a_strangers_raises(self, held, document: PagedDocument, owner: str) -> None:
        id = "missing" if owner == TENANT else new(document)
        with pytest.raises(DocumentMissing):
            document.append(owner, id, *turn("t1"))

    def test_makes_the_documents_change_visible_in_update_time(self, held) -> None:
        id = new()
        change("UPDATE {conversation} SET update_time = 0 WHERE id = %s", [id])
        say(id, "t1")
        [(moment, date)] = fetch("SELECT update_time, update_date FROM {conversation} WHERE id = %s", [id])
        assert moment > 0
        assert str(date)[:4] >= "2026"


class TestRevision:
    def test_that_is_current_lets_the_append_through(self, held) -> None:
        id = new()
        say(id, "t1")
        CONVERSATIONS.append(TENANT, id, *turn("t2"), expect_revision=counters(id)["revision"])
        assert names_of(id) == ["t1", "t2"]

    def test_that_is_old_refuses_it_with_the_current_one(self, held) -> None:
        id = new()
        say(id, "t1")
        with pytest.raises(DocumentConflict) as conflict:
            CONVERSATIONS.append(TENANT, id, *turn("t2"), expect_revision=0)
        assert conflict.value.revision == counters(id)["revision"] == 1
        assert names_of(id) == ["t1"]

    def test_of_a_legacy_row_lets_its_first_append_through(self, held) -> None:
        id = legacy([{"role": "user", "content": "question old"}], [])
        CONVERSATIONS.append(TENANT, id, *turn("t2"), expect_revision=counters(id)["revision"])
        assert names_of(id) == ["old", "t2"]
        assert_sound(id, imported=True)

    def test_of_a_legacy_row_that_is_old_leaves_it_alone(self, held) -> None:
        id = legacy([{"role": "user", "content": "question old"}], [])
        with pytest.raises(DocumentConflict):
            CONVERSATIONS.append(TENANT, id, *turn("t2"), expect_revision=7)
        assert counters(id)["next_seq"] == 0

    @TINY
    def test_grows_with_every_change(self, held) -> None:
        id = new()
        seen = [counters(id)["revision"]]
        steps = (
            lambda: say(id, *"abcdef", length=200),
            lambda: CONVERSATIONS.edit_turn(TENANT, id, "b", lambda entries, slots: (entries, slots)),
            lambda: CONVERSATIONS.delete_turn(TENANT, id, "c"),
            lambda: CONVERSATIONS.rewind(TENANT, id, 9),
        )
        for step in steps:
            step()
            seen.append(counters(id)["revision"])
        assert seen == sorted(set(seen))


def legacy(message: list[Any], reference: list[Any], document: PagedDocument = CONVERSATIONS) -> str:
    return document.row.create(
        tenant_id=TENANT, dialog_id="chat", format=0, next_seq=0, message=message, reference=reference
    ).id


@TINY
class TestPages:
    def test_are_sealed_by_the_turn_that_takes_them_over_the_limit(self, held) -> None:
        id = new(prologue="Hi")
        say(id, *(f"t{n}" for n in range(20)), length=200)
        pages = stored_pages(id)
        assert len(pages) > 5
        assert names_of(id) == [f"t{n}" for n in range(20)]
        assert_sound(id, limit=900)
        assert [page.page_bytes > 900 for page in CONVERSATIONS.pages(id)] == [True] * (len(pages) - 1)

    def test_are_not_sealed_by_a_question(self, held) -> None:
        id = new()
        [question, answer], slots = turn("t1", length=2000)
        CONVERSATIONS.append(TENANT, id, [question | {"content": "q" * 2000}])
        assert counters(id)["page_count"] == 0
        CONVERSATIONS.append(TENANT, id, [answer], slots)
        assert (counters(id)["page_count"], counters(id)["open_bytes"]) == (1, 0)
        assert_sound(id, limit=900)

    def test_never_cut_a_running_turn_in_two(self, held) -> None:
        id = new()
        CONVERSATIONS.append(TENANT, id, turn("running")[0][:1])
        CONVERSATIONS.append(TENANT, id, [{"role": "tool", "content": "t" * 2000, "id": "running"}])
        assert counters(id)["page_count"] == 0
        [_, answer], slots = turn("running", length=2000)
        CONVERSATIONS.append(TENANT, id, [answer], slots)
        assert [entry["seq"] for entry in stored_pages(id)[0][0]] == [1, 2, 3]
        assert_sound(id, limit=900)

    def test_over_the_limit_are_sealed_before_an_append_outside_a_run(self, held) -> None:
        id = legacy([{"role": "user", "content": "q" * 1000, "id": "old"}, {"role": "assistant", "content": "a"}], [])
        with transaction():
            CONVERSATIONS.ensure_adopted(TENANT, id)
        CONVERSATIONS.append(TENANT, id, [{"role": "user", "content": "q", "id": "new"}])
        assert [entry["id"] for entry in stored_pages(id)[-1][0]] == ["new"]
        assert_sound(id, limit=900)

    def test_end_although_a_question_was_never_answered(self, held) -> None:
        id = new()
        CONVERSATIONS.append(TENANT, id, turn("dangling")[0][:1])
        say(id, *(f"t{n}" for n in range(20)), length=200)
        assert counters(id)["open_bytes"] < 5 * 900

    @both_tables
    def test_go_with_their_document(self, held, document: PagedDocument) -> None:
        id = new(document)
        say(id, *"abcdef", document=document, length=300)
        assert counters(id, document)["page_count"] > 1
        assert_sound(id, document)
        assert document.delete(TENANT, [id, "missing"]) == {id}
        assert document.pages(id) == []
        assert index_rows(id) == []

    def test_stay_where_a_stranger_deletes(self, held) -> None:
        id = new()
        say(id, *"abcdef", length=300)
        assert CONVERSATIONS.delete("stranger", [id]) == set()
        assert_sound(id)


@TINY
class TestReading:
    @pytest.fixture
    def id(self, held) -> str:
        id = new(prologue="Hi")
        for n in range(12):
            say(id, f"t{n}", chunks=(f"c{n}",), length=100)
        return id

    @pytest.mark.parametrize(("first", "last"), [
        (1, 1), (1, 25), (2, 3), (3, 4), (5, 17), (24, 25), (0, 2), (20, 99), (26, 30), (7, 6),
    ])
    def test_a_range_gives_its_entries_and_their_turns_slots(self, id: str, first: int, last: int) -> None:
        whole, part = CONVERSATIONS.load(TENANT, id), CONVERSATIONS.load_range(TENANT, id, first, last)
        assert part.entries == [entry for entry in whole.entries if first <= entry["seq"] <= last]
        turns = {entry.get("id") for entry in part.entries}
        assert part.slots == [slot for slot in whole.slots if slot["message_id"] in turns]
        assert part.revision == whole.revision

    def test_a_range_over_a_gap_gives_what_is_left(self, id: str) -> None:
        CONVERSATIONS.delete_turn(TENANT, id, "t3")
        seqs = [entry["seq"] for entry in CONVERSATIONS.load_range(TENANT, id, 6, 11).entries]
        assert seqs == [6, 7, 10, 11]
        assert CONVERSATIONS.load_range(TENANT, id, 8, 9).entries == []

    @pytest.mark.parametrize("name", ["t0", "t5", "t11"])
    def test_a_turn_gives_its_entries_and_slot(self, id: str, name: str) -> None:
        found = CONVERSATIONS.load_turn(TENANT, id, name)
        assert [entry["role"] for entry in found.entries] == ["user", "assistant"]
        assert [slot["chunks"][0]["id"] for slot in found.slots] == ["c" + name[1:]]

    def test_an_unknown_turn_gives_nothing(self, id: str) -> None:
        found = CONVERSATIONS.load_turn(TENANT, id, "unknown")
        assert (found.entries, found.slots) == ([], [])
        assert CONVERSATIONS.find_turn(TENANT, id, "unknown") is None

    def test_the_text_is_the_parsed_document(self, id: str) -> None:
        text = CONVERSATIONS.load_text(TENANT, id)
        whole = CONVERSATIONS.load(TENANT, id)
        assert (json.loads(text.array(0)), json.loads(text.array(1))) == (whole.entries, whole.slots)
        assert (text.parsed().entries, text.parsed().slots) == (whole.entries, whole.slots)

    def test_the_text_of_an_empty_document_is_two_empty_arrays(self, held) -> None:
        text = CONVERSATIONS.load_text(TENANT, new())
        assert (json.loads(text.array(0)), json.loads(text.array(1))) == ([], [])

    @pytest.mark.settings(document={"page_bytes": 900, "batch_bytes": 6000})
    def test_many_texts_come_in_batches_and_lack_what_is_gone(self, id: str) -> None:
        others = [new(), new(prologue="Hello")]
        sizes = {name: counters(name)["document_bytes"] for name in (id, *others)} | {"gone": 10}
        batches = list(CONVERSATIONS.load_texts(TENANT, sizes))
        assert [sorted(batch) for batch in batches] == [[id], sorted(others)] or len(batches) == 1
        together = {name: text for batch in batches for name, text in batch.items()}
        assert together == {name: CONVERSATIONS.load_text(TENANT, name) for name in (id, *others)}
        assert all(not batch for batch in CONVERSATIONS.load_texts("stranger", sizes))

    def test_the_view_shows_the_whole_document(self, id: str) -> None:
        view = "conversation_full" if dialect().name == "sqlite" else "chatkeep.conversation_full"
        [(message, reference)] = fetch(
            f"SELECT CAST(message AS text), CAST(reference AS text) FROM {view} WHERE id = %s", [id]
        )
        whole = CONVERSATIONS.load(TENANT, id)
        assert (json.loads(message), json.loads(reference)) == (whole.entries, whole.slots)

    def test_the_view_shows_rows_of_another_system_beside(self, id: str) -> None:
        legacy(["words", None, 3, {"role": "user", "content": "q"}], [None, {}])
        view = "conversation_full" if dialect().name == "sqlite" else "chatkeep.conversation_full"
        texts = [json.loads(row[0]) for row in fetch(f"SELECT CAST(message AS text) FROM {view}")]
        assert ["words", None, 3, {"role": "user", "content": "q"}] in texts

    @pytest.mark.parametrize("read", [
        CONVERSATIONS.load, CONVERSATIONS.load_text, CONVERSATIONS.lock,
        lambda owner, id: CONVERSATIONS.load_range(owner, id, 1, 2),
        lambda owner, id: CONVERSATIONS.load_turn(owner, id, "t1"),
    ], ids=["load", "text", "lock", "range", "turn"])
    def test_a_missing_document_and_a_strangers_look_alike(self, id: str, read: Any) -> None:
        for owner, name in ((TENANT, "missing"), ("stranger", id)):
            with pytest.raises(DocumentMissing):
                read(owner, name)


@TINY
class TestChanging:
    @pytest.fixture
    def id(self, held) -> str:
        id = new(prologue="Hi")
        for n in range(10):
            say(id, f"t{n}", chunks=(f"c{n}",), length=100)
        assert counters(id)["page_count"] > 3
        return id

    @pytest.mark.parametrize("name", ["t0", "t4", "t9"])
    def test_an_edit_changes_its_turn_alone(self, id: str, name: str) -> None:
        before = CONVERSATIONS.load(TENANT, id)

        def vote(entries: list[Any], slots: list[Any]) -> tuple[list[Any], list[Any]]:
            for entry in entries:
                if entry.get("id") == name:
                    entry["thumbup"] = True
            return entries, slots

        assert CONVERSATIONS.edit_turn(TENANT, id, name, vote)
        after = CONVERSATIONS.load(TENANT, id)
        assert after.slots == before.slots
        assert after.entries == [
            entry | ({"thumbup": True} if entry.get("id") == name else {}) for entry in before.entries
        ]
        assert_sound(id)

    def test_an_edit_cleans_what_it_writes(self, id: str) -> None:
        def dirty(entries: list[Any], slots: list[Any]) -> tuple[list[Any], list[Any]]:
            entries[-1]["feedback"] = "a\x00b\ud800"
            return entries, slots

        assert CONVERSATIONS.edit_turn(TENANT, id, "t9", dirty)
        assert CONVERSATIONS.load(TENANT, id).entries[-1]["feedback"] == "ab\ufffd"
        assert_sound(id)

    @pytest.mark.parametrize("operation", [
        lambda id: CONVERSATIONS.edit_turn(TENANT, id, "unknown", lambda entries, slots: ([], [])),
        lambda id: CONVERSATIONS.delete_turn(TENANT, id, "unknown"),
        lambda id: CONVERSATIONS.rewind(TENANT, id, 99), lambda id: CONVERSATIONS.rewind(TENANT, id, 0),
        lambda id: CONVERSATIONS.rewind(TENANT, id, 1),
    ], ids=["edit", "delete", "rewind", "rewind to 0", "rewind the prologue"])
    def test_an_unknown_turn_or_the_prologue_changes_nothing(self, id: str, operation: Any) -> None:
        before, entries = counters(id), CONVERSATIONS.load(TENANT, id)
        assert not operation(id)
        assert counters(id) == before
        assert CONVERSATIONS.load(TENANT, id) == entries

    @pytest.mark.parametrize("operation", [
        lambda owner, id: CONVERSATIONS.edit_turn(owner, id, "t1", lambda entries, slots: ([], [])),
        lambda owner, id: CONVERSATIONS.delete_turn(owner, id, "t1"),
        lambda owner, id: CONVERSATIONS.rewind(owner, id, 2),
    ], ids=["edit", "delete", "rewind"])
    def test_a_missing_document_and_a_strangers_raise(self, id: str, operation: Any) -> None:
        for owner, name in ((TENANT, "missing"), ("stranger", id)):
            with pytest.raises(DocumentMissing):
                operation(owner, name)
        assert len(names_of(id)) == 10

    @pytest.mark.parametrize("name", ["t0", "t4", "t9"])
    def test_deleting_a_turn_takes_its_own_slot_and_no_other(self, id: str, name: str) -> None:
        before = CONVERSATIONS.load(TENANT, id)
        assert CONVERSATIONS.delete_turn(TENANT, id, name)
        after = CONVERSATIONS.load(TENANT, id)
        assert after.entries == [entry for entry in before.entries if entry.get("id") != name]
        assert after.slots == [slot for slot in before.slots if slot["message_id"] != name]
        assert not CONVERSATIONS.delete_turn(TENANT, id, name), "a second time it is unknown"
        assert_sound(id)

    def test_deleting_every_turn_leaves_the_prologue_and_the_next_turn_works(self, id: str) -> None:
        for n in (5, 3, 4, 0, 9, 1, 2, 8, 7, 6):
            assert CONVERSATIONS.delete_turn(TENANT, id, f"t{n}")
            assert_sound(id)
        assert [entry["content"] for entry in CONVERSATIONS.load(TENANT, id).entries] == ["Hi"]
        say(id, *(f"n{n}" for n in range(8)), length=300)
        assert CONVERSATIONS.load(TENANT, id).entries[1]["seq"] == 22
        assert_sound(id)

    def test_a_turn_asked_again_under_its_old_id_is_new(self, id: str) -> None:
        CONVERSATIONS.delete_turn(TENANT, id, "t3")
        say(id, "t3", chunks=("again",))
        found = CONVERSATIONS.load_turn(TENANT, id, "t3")
        assert [entry["seq"] for entry in found.entries] == [22, 23]
        assert found.slots[0]["chunks"][0]["id"] == "again"
        assert_sound(id)

    @pytest.mark.parametrize("seq", range(2, 22))
    def test_a_rewind_begins_at_its_turns_first_entry(self, id: str, seq: int) -> None:
        kept = (seq - 2) // 2
        assert CONVERSATIONS.rewind(TENANT, id, seq) == 2 * (10 - kept)
        assert names_of(id) == [f"t{n}" for n in range(kept)]
        assert counters(id)["next_seq"] == 22, "seq isn't given back"
        assert_sound(id)
        say(id, "again", length=900)
        assert CONVERSATIONS.load(TENANT, id).entries[-2]["seq"] == 22
        assert_sound(id)

    @both_tables
    def test_a_move_takes_pages_index_and_runs_along(self, held, document: PagedDocument) -> None:
        id = new(document)
        say(id, *"abcdef", document=document, length=300)
        change("""INSERT INTO {run} (id, tenant_id, conversation_id, kind, status, cancel_requested)
            VALUES ('r', %s, %s, 'chat', 'complete', %s)""", [TENANT, id, False])
        before = document.load(TENANT, id)
        assert document.move(TENANT, id, "moved")
        assert document.load(TENANT, "moved") == before
        assert_sound("moved", document)
        assert fetch("SELECT conversation_id FROM {run}") == [("moved",)]
        assert (document.pages(id), index_rows(id)) == ([], [])
        with pytest.raises(DocumentMissing):
            document.load(TENANT, id)

    def test_a_move_to_a_taken_id_or_of_a_strangers_changes_nothing(self, id: str) -> None:
        other = new()
        assert not CONVERSATIONS.move(TENANT, id, other)
        assert not CONVERSATIONS.move("stranger", id, "elsewhere")
        assert not CONVERSATIONS.move(TENANT, "missing", "elsewhere")
        assert len(names_of(id)) == 10
        assert_sound(id)

    def test_deleting_takes_runs_and_journal_along(self, id: str) -> None:
        change("""INSERT INTO {run} (id, tenant_id, conversation_id, turn_id, kind, status, cancel_requested)
            VALUES ('r', %s, %s, 't1', 'chat', 'complete', %s)""", [TENANT, id, False])
        change("INSERT INTO {run_event} (run_id, n, payload) VALUES ('r', 1, '{}')")
        CONVERSATIONS.delete(TENANT, [id])
        assert fetch("SELECT count(*) FROM {run}") == fetch("SELECT count(*) FROM {run_event}") == [(0,)]

    def test_deleting_a_turn_takes_its_run_along(self, id: str) -> None:
        for run, name in (("r1", "t1"), ("r2", "t2")):
            change("""INSERT INTO {run} (id, tenant_id, conversation_id, turn_id, kind, status, cancel_requested)
                VALUES (%s, %s, %s, %s, 'chat', 'complete', %s)""", [run, TENANT, id, name, False])
        CONVERSATIONS.delete_turn(TENANT, id, "t1")
        assert fetch("SELECT id FROM {run}") == [("r2",)]


class TestFormat:
    @pytest.mark.parametrize("entry", [
        {"role": "tool", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": "", "hidden": True},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]},
        {"role": "assistant", "content": None}, {"role": "developer", "content": "x"},
    ])
    def test_is_2_once_an_entry_is_nothing_for_ragflows_wire(self, held, entry: dict[str, Any]) -> None:
        id = new(prologue="Hi")
        say(id, "t1")
        assert counters(id)["format"] == 1
        CONVERSATIONS.append(TENANT, id, [entry])
        say(id, "t2")
        assert CONVERSATIONS.load(TENANT, id).format == counters(id)["format"] == 2

    @pytest.mark.parametrize("operation", [
        lambda id: CONVERSATIONS.load(TENANT, id), lambda id: CONVERSATIONS.load_text(TENANT, id),
        lambda id: CONVERSATIONS.load_range(TENANT, id, 1, 2),
        lambda id: list(CONVERSATIONS.load_texts(TENANT, {id: 1})),
    ], ids=["load", "text", "range", "texts"])
    def test_of_a_newer_release_is_a_clear_error(self, held, operation: Any) -> None:
        id = new()
        change("UPDATE {conversation} SET format = %s WHERE id = %s", [NEWEST_FORMAT + 1, id])
        with pytest.raises(DocumentTooNew, match="newer release"):
            operation(id)

    @pytest.mark.parametrize("operation", [
        lambda id: say(id, "t2"), lambda id: CONVERSATIONS.delete_turn(TENANT, id, "t1"),
        lambda id: CONVERSATIONS.rewind(TENANT, id, 1),
        lambda id: CONVERSATIONS.edit_turn(TENANT, id, "t1", lambda entries, slots: (entries, slots)),
    ], ids=["append", "delete", "rewind", "edit"])
    def test_of_a_newer_release_is_not_written_to(self, held, operation: Any) -> None:
        id = new()
        say(id, "t1")
        change("UPDATE {conversation} SET format = %s WHERE id = %s", [NEWEST_FORMAT + 1, id])
        before = counters(id)
        with pytest.raises(DocumentTooNew):
            operation(id)
        assert counters(id) == before


class TestTheColumns:
    @both_tables
    @pytest.mark.parametrize("column", ["message", "reference"])
    @pytest.mark.parametrize("value", [None, "{}", "null", '{"chunks": []}', '"text"', "1"])
    def test_hold_arrays_only(self, held, document: PagedDocument, column: str, value: str | None) -> None:
        id = new(document)
        with pytest.raises(DatabaseError), transaction():
            change(f"UPDATE {{{document.table}}} SET {column} = %s WHERE id = %s", [value, id])
        say(id, "t1", document=document)
        assert len(document.load(TENANT, id).entries) == 2

    @both_tables
    @pytest.mark.parametrize("column", ["message", "reference"])
    def test_hold_arrays_only_from_the_first_insert_on(self, held, document: PagedDocument, column: str) -> None:
        for value in (None, "{}", "null"):
            with pytest.raises(DatabaseError), transaction():
                change(f"""INSERT INTO {{{document.table}}} (id, tenant_id, dialog_id, create_time, create_date,
                    update_time, update_date, {column}) VALUES ('x', 't', 'd', 0, '2026-01-01 00:00:00', 0,
                    '2026-01-01 00:00:00', %s)""", [value])
