"""Runs: one active a session, ended once by whoever has the right, never leaving a question behind."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from db.database import change, connection, fetch, transaction
from db.document import API4_CONVERSATIONS, CONVERSATIONS, DocumentMissing, Loaded, PagedDocument
from db.models import Conversation, Dialog
from services.completions import Ask, Completions, OnConflict
from services.conversation_service import ConversationService
from services.errors import Busy, NotFound
from services.events import End, ErrorCode, Event, FinishReason, TextDelta
from services.principal import Principal
from services.runs.recovery import recover
from services.runs.rows import Occupied, RunService, TurnExists
from services.runs.values import Given, Outcome, Right, Start, is_dead_neighbour, this_process
from services.runs.workers import Workers
from services.structure_answer import Turn
from tests.factories import DialogFactory
from tests.fakes import Gate, ScriptedModel, ScriptedModels, fails, says
from tests.invariants import assert_sound, ended_turns, index_rows, turn_ids

TENANT = "acme"
ALICE = Principal(TENANT)
SYSTEM = Principal.system()
ELSEWHERE = "another-host:4711:1.5"  # a process that only its lease can speak for
LATER = "third-host:4711:1.5"


@pytest.fixture
def id(store) -> str:
    """A session with a prologue."""
    return new_session()


def new_session(document: PagedDocument = CONVERSATIONS) -> str:
    with connection():
        return document.create({"tenant_id": TENANT, "dialog_id": "chat"}, "Hi").id


def start_of(id: str, name: str, document: PagedDocument = CONVERSATIONS, **more: Any) -> Start:
    return Start(TENANT, id, {"role": "user", "content": f"question {name}", "id": name}, document, **more)


def begin(id: str, name: str, owner: str = ELSEWHERE, lease: float = 60, **more: Any) -> Start:
    start = start_of(id, name, **more)
    RunService.begin(start, owner, lease)
    return start


def end(start: Start, text: str = "answer", owner: str = ELSEWHERE) -> bool:
    return RunService.end(start, Turn([text]), End(), Outcome.SUCCESS, Right.of_owner(owner))


def load(id: str, document: PagedDocument = CONVERSATIONS) -> Loaded:
    with connection():
        return document.load(TENANT, id)


def answers(id: str) -> list[tuple[str, str]]:
    return [(entry["content"], entry["finish_reason"]) for entry in load(id).entries if "finish_reason" in entry]


def run_rows(id: str, columns: str = "turn_id, status, outcome") -> list[tuple[Any, ...]]:
    with connection():
        return fetch(f"SELECT {columns} FROM {{run}} WHERE conversation_id = %s ORDER BY turn_id", [id])


def assert_all_in_place(id: str, document: PagedDocument = CONVERSATIONS) -> None:
    with connection():
        assert_sound(id, document)


def together(*works: Callable[[], Any]) -> list[Any]:
    """What each returned or raised, begun at the same moment."""
    barrier = threading.Barrier(len(works))

    def one(work: Callable[[], Any]) -> Any:
        barrier.wait(30)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(one, work) for work in works]
    return [future.exception() or future.result() for future in futures]


class TestBegin:
    def test_stores_question_and_run_together(self, id: str) -> None:
        begin(id, "t1")
        assert turn_ids(load(id).entries) == ["t1"]
        assert run_rows(id) == [("t1", "active", None)]
        assert_all_in_place(id)

    @pytest.mark.parametrize("document", [CONVERSATIONS, API4_CONVERSATIONS], ids=lambda d: d.table)
    def test_refused_leaves_no_question(self, store, document: PagedDocument) -> None:
        id = new_session(document)
        begin(id, "t1", document=document)
        before = load(id, document)
        with pytest.raises(Occupied):
            begin(id, "t2", document=document)
        assert load(id, document) == before
        assert [row[0] for row in run_rows(id)] == ["t1"]
        assert_all_in_place(id, document)

    def test_refused_leaves_no_given_history(self, store) -> None:
        id = new_session()
        start = start_of(id, "t1")
        with connection():
            change("""INSERT INTO {run} (id, tenant_id, conversation_id, kind, turn_id, status, owner, lease_until,
                cancel_requested) VALUES ('r', %s, %s, 'chat', 'other', 'active', %s, {now} + 60, %s)""",
                [TENANT, id, ELSEWHERE, False])
        given = Given([], [([{"role": "user", "content": "old", "id": "old", "uid": "old"}],
                            {"message_id": "old", "chunks": [], "doc_aggs": []})])
        with pytest.raises(Occupied):
            RunService.begin(Start(TENANT, id, start.question, given=given), ELSEWHERE, 60)
        assert turn_ids(load(id).entries) == []
        assert_all_in_place(id)

    def test_of_many_at_once_starts_one_and_stores_one_question(self, id: str) -> None:
        told = together(*(lambda n=n: begin(id, f"t{n}") for n in range(10)))
        refused = [each for each in told if isinstance(each, Occupied)]
        assert (len(refused), len(turn_ids(load(id).entries))) == (9, 1)
        assert_all_in_place(id)

    def test_of_the_same_turn_a_second_time_is_known(self, id: str) -> None:
        end(begin(id, "t1"))
        with pytest.raises(TurnExists):
            begin(id, "t1")
        assert len(answers(id)) == 1

    def test_of_the_same_turn_by_two_at_once_starts_one(self, id: str) -> None:
        told = together(*(lambda: begin(id, "t1") for _ in range(6)))
        assert sum(isinstance(each, TurnExists) for each in told) == 5
        assert turn_ids(load(id).entries) == ["t1"]

    def test_in_a_missing_session_or_a_strangers_stores_nothing(self, id: str) -> None:
        for start in (start_of("missing", "t1"), Start("stranger", id, {"role": "user", "content": "", "id": "t1"})):
            with pytest.raises(DocumentMissing):
                RunService.begin(start, ELSEWHERE, 60)
        with connection():
            assert fetch("SELECT count(*) FROM {run}") == [(0,)]

    def test_without_a_session_leaves_only_its_run(self, store) -> None:
        for name in ("t1", "t2"):
            start = Start(TENANT, None, {"role": "user", "content": "q", "id": name})
            RunService.begin(start, ELSEWHERE, 60)
        assert end(start)
        with connection():
            assert fetch("SELECT count(*) FROM {message_index}") == [(0,)]


class TestEnd:
    def test_stores_the_answer_once_however_often_it_is_tried(self, id: str) -> None:
        start = begin(id, "t1")
        assert [end(start), end(start), end(start, "late")] == [True, False, False]
        assert answers(id) == [("answer", "stop")]
        assert run_rows(id) == [("t1", "complete", "success")]
        assert_all_in_place(id)

    def test_of_one_whose_lease_was_taken_writes_nothing(self, id: str) -> None:
        start = begin(id, "t1", lease=-1)
        assert recover(SYSTEM) == 1
        before = load(id)
        assert not end(start, "too late")
        assert load(id) == before
        assert answers(id) == [("", "interrupted")]
        assert run_rows(id) == [("t1", "interrupted", "lost")]
        assert_all_in_place(id)

    def test_by_another_owner_writes_nothing(self, id: str) -> None:
        start = begin(id, "t1")
        assert not end(start, owner=LATER)
        assert answers(id) == []
        assert end(start)

    def test_of_a_late_owner_racing_the_recoverer_answers_once(self, store) -> None:
        for _ in range(25):
            id = new_session()
            start = begin(id, "t1", lease=-1)
            told = together(lambda start=start: end(start), lambda: recover(SYSTEM))
            assert sum(map(int, told)) == 1, told
            assert len(answers(id)) == 1
            assert_all_in_place(id)

    def test_after_the_session_was_deleted_says_that_it_is_gone(self, id: str) -> None:
        start = begin(id, "t1")
        with connection():
            CONVERSATIONS.delete(TENANT, [id])
        with pytest.raises(DocumentMissing):
            end(start)
        assert run_rows(id) == []
        with connection():
            assert index_rows(id) == []

    def test_beside_a_delete_never_deadlocks(self, store) -> None:
        def delete(id: str) -> set[str]:
            with connection():
                return CONVERSATIONS.delete(TENANT, [id])

        began = time.monotonic()
        for _ in range(25):
            id = new_session()
            start = begin(id, "t1")
            ended, deleted = together(lambda start=start: end(start), lambda id=id: delete(id))
            assert ended is True or isinstance(ended, DocumentMissing), ended
            assert deleted == {id}
            assert run_rows(id) == []
        assert time.monotonic() - began < 15

    def test_makes_room_for_the_next_question(self, id: str) -> None:
        for n in range(3):
            assert end(begin(id, f"t{n}"), f"answer {n}")
        assert [text for text, _ in answers(id)] == ["answer 0", "answer 1", "answer 2"]
        assert_all_in_place(id)


class TestRecovery:
    def test_by_two_at_once_answers_once(self, store) -> None:
        for _ in range(25):
            id = new_session()
            begin(id, "t1", lease=-1)
            told = together(*[lambda: recover(SYSTEM)] * 2)
            assert sorted(told) == [0, 1]
            assert answers(id) == [("", "interrupted")]
            assert_all_in_place(id)

    def test_leaves_a_run_with_a_lease_alone(self, id: str) -> None:
        begin(id, "t1")
        assert recover(SYSTEM) == 0
        assert run_rows(id) == [("t1", "active", None)]

    def test_spares_a_run_that_is_renewed_while_it_looks(self, id: str) -> None:
        begin(id, "t1", lease=-1)
        found: list[int] = []
        recoverer = threading.Thread(target=lambda: found.append(recover(SYSTEM)), daemon=True)
        with connection(), transaction():
            change("UPDATE {run} SET lease_until = {now} + 60")
            recoverer.start()
            time.sleep(0.3)  # it has seen the old lease and waits for the row
        recoverer.join(10)
        assert found == [0]
        assert run_rows(id) == [("t1", "active", None)]
        assert answers(id) == []

    def test_leaves_this_process_alone_while_it_has_a_lease(self, id: str) -> None:
        begin(id, "t1", owner=this_process())
        assert recover(SYSTEM) == 0

    @pytest.mark.parametrize("kind", ["gone", "another start"])
    def test_at_start_ends_what_a_dead_neighbour_left_though_its_lease_runs(self, id: str, store, kind: str) -> None:
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        pid = dead.pid if kind == "gone" else os.getpid()
        begin(id, "t1", owner=f"{socket.gethostname()}:{pid}:1.5")
        workers = Workers(store)
        workers.open()
        try:
            assert answers(id) == [("", "interrupted")]
            begin(id, "t2")
        finally:
            workers.close()
        assert_all_in_place(id)

    def test_drops_a_queued_run_whose_owner_is_gone(self, id: str) -> None:
        begin(id, "t1")
        RunService.enqueue(start_of(id, "t2"), LATER, -1, 5)
        recover(SYSTEM)
        assert run_rows(id) == [("t1", "active", None)]
        assert turn_ids(load(id).entries) == ["t1"]

    def test_ends_a_run_without_a_session(self, store) -> None:
        RunService.begin(Start(TENANT, None, {"role": "user", "content": "q", "id": "t1"}), ELSEWHERE, -1)
        assert recover(SYSTEM) == 1

    def test_ends_the_runs_of_both_tables(self, store) -> None:
        ids = [new_session(), new_session(API4_CONVERSATIONS)]
        for id, document in zip(ids, (CONVERSATIONS, API4_CONVERSATIONS), strict=True):
            begin(id, "t1", lease=-1, document=document)
        assert recover(SYSTEM) == 2
        assert_all_in_place(ids[1], API4_CONVERSATIONS)

    @pytest.mark.parametrize("owner", [None, "", "no colons"])
    def test_is_not_stopped_by_a_run_without_a_readable_owner(self, id: str, owner: str | None) -> None:
        begin(id, "t1", lease=-1)
        with connection():
            change("UPDATE {run} SET owner = %s", [owner])
        assert recover(SYSTEM) == 1

    def test_ends_a_run_whose_session_is_gone(self, id: str) -> None:
        begin(id, "t1", lease=-1)
        with connection(), transaction():
            change("DELETE FROM {conversation} WHERE id = %s", [id])
        recover(SYSTEM)
        assert run_rows(id) in ([], [("t1", "interrupted", "lost")])

    def test_knows_a_living_neighbour(self) -> None:
        assert not is_dead_neighbour(this_process())
        assert not is_dead_neighbour(ELSEWHERE)


class TestQueue:
    def test_lets_runs_in_by_order_of_arrival(self, id: str) -> None:
        active = begin(id, "t0")
        waiting = [start_of(id, f"t{n}") for n in range(1, 6)]
        for start in waiting:
            RunService.enqueue(start, ELSEWHERE, 60, 10)
        assert turn_ids(load(id).entries) == ["t0"], "a queued question isn't stored yet"
        for expected in waiting:
            assert end(active)
            entered = []
            for start in reversed(waiting[waiting.index(expected):]):
                try:
                    RunService.promote(start)
                    entered.append(start)
                except Occupied:
                    pass
            assert entered == [expected]
            active = expected
        assert end(active)
        assert ended_turns(load(id).entries) == [f"t{n}" for n in range(6)]
        assert_all_in_place(id)

    def test_is_not_overtaken_by_a_newcomer(self, id: str) -> None:
        active = begin(id, "t0")
        RunService.enqueue(start_of(id, "t1"), ELSEWHERE, 60, 10)
        end(active)
        with pytest.raises(Occupied):
            begin(id, "t2")
        assert turn_ids(load(id).entries) == ["t0"]

    def test_promotes_one_of_many_at_once(self, id: str) -> None:
        active = begin(id, "t0")
        waiting = [start_of(id, f"t{n}") for n in range(1, 7)]
        for start in waiting:
            RunService.enqueue(start, ELSEWHERE, 60, 10)
        end(active)
        told = together(*(lambda start=start: RunService.promote(start) for start in waiting))
        assert told[0] is None
        assert all(isinstance(each, Occupied) for each in told[1:])
        assert turn_ids(load(id).entries) == ["t0", "t1"]

    def test_takes_no_more_than_its_length_and_no_turn_twice(self, id: str) -> None:
        begin(id, "t0")
        RunService.enqueue(start_of(id, "t1"), ELSEWHERE, 60, 2)
        with pytest.raises(TurnExists):
            RunService.enqueue(start_of(id, "t1"), ELSEWHERE, 60, 2)
        RunService.enqueue(start_of(id, "t2"), ELSEWHERE, 60, 2)
        with pytest.raises(Busy):
            RunService.enqueue(start_of(id, "t3"), ELSEWHERE, 60, 2)

    def test_gives_arrival_numbers_to_all_who_come_at_once(self, id: str) -> None:
        begin(id, "t0")
        together(*(lambda n=n: RunService.enqueue(start_of(id, f"t{n}"), ELSEWHERE, 60, 20) for n in range(1, 9)))
        assert sorted(row[0] for row in run_rows(id, "arrival")) == list(range(9))

    def test_forgets_who_withdraws_and_stores_nothing(self, id: str) -> None:
        begin(id, "t0")
        waiting = start_of(id, "t1")
        RunService.enqueue(waiting, ELSEWHERE, 60, 2)
        RunService.withdraw(waiting.id)
        with pytest.raises(Busy):
            RunService.promote(waiting)
        assert turn_ids(load(id).entries) == ["t0"]


class Desk:
    """Asks questions through the real Completions, with a scripted model."""

    def __init__(self, settings: Any) -> None:
        self.model = ScriptedModel()
        self.workers = Workers(settings)
        self.completions = Completions(settings, self.workers, ScriptedModels())
        with connection():
            self.dialog: Dialog = DialogFactory(tenant_id=TENANT)

    def session(self) -> str:
        return ConversationService.create(ALICE, self.dialog).id

    def ask(self, session_id: str, text: str, answer: Callable[[], Iterator[Event]] | None = None, **more: Any) -> Any:
        if answer:
            self.model.script(text, answer)
        question = {"role": "user", "content": text}
        return self.completions.ask(ALICE, Ask(question, self.dialog, session_id, self.model, **more))


def read(reading: Any) -> list[Event]:
    return [each.event for each in reading.follow() if each is not None]


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "not within 10 s"
        time.sleep(0.01)


@pytest.fixture
def desk(store) -> Iterator[Desk]:
    desk = Desk(store)
    desk.workers.open()
    yield desk
    desk.workers.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate("first ", after=("last",))
    yield gate
    gate.opened.set()


class TestAWholeTurn:
    def test_keeps_the_partial_answer_of_a_model_that_fails(self, desk: Desk) -> None:
        id = desk.session()
        *_, last = read(desk.ask(id, "q", lambda: fails("part ")))
        assert (last.finish_reason, last.error_code) == (FinishReason.ERROR, ErrorCode.MODEL_ERROR)
        entry = load(id).entries[-1]
        assert (entry["content"], entry["finish_reason"]) == ("part ", "error")
        assert "secret" not in str(load(id))
        assert run_rows(id, "status, error_message") == [("errored", "upstream said: secret detail")]
        assert_all_in_place(id)

    def test_keeps_going_when_its_reader_leaves(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        reading = desk.ask(id, "q", gate)
        follower = reading.follow()
        assert next(follower).event == TextDelta("first ")
        follower.close()
        gate.opened.set()
        wait_for(lambda: run_rows(id)[0][1] == "complete")
        assert answers(id) == [("first last", "stop")]

    def test_whose_session_is_deleted_ends_with_an_error_frame(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        reading = desk.ask(id, "q", gate)
        assert gate.reached.wait(5)
        ConversationService.delete(ALICE, desk.dialog.id, [id])
        gate.opened.set()
        *_, last = read(reading)
        assert last.finish_reason is FinishReason.ERROR
        with connection():
            assert [fetch(f"SELECT count(*) FROM {{{table}}}") for table in ("run", "message_index")] == [[(0,)]] * 2

    def test_whose_session_is_deleted_stops_although_the_model_goes_on(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        reading = desk.ask(id, "q", gate)
        assert gate.reached.wait(5)
        ConversationService.delete(ALICE, desk.dialog.id, [id])
        wait_for(lambda: desk.completions.workers.find(reading.run_id) is None)

    def test_taken_over_by_a_recoverer_tells_its_reader(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        reading = desk.ask(id, "q", gate)
        assert gate.reached.wait(5)
        with connection():
            change("UPDATE {run} SET owner = %s, lease_until = {now} - 1", [ELSEWHERE])
        assert recover(SYSTEM) in (0, 1)
        gate.opened.set()
        *seen, last = read(reading)
        assert last.finish_reason is FinishReason.ERROR
        [(text, finish)] = answers(id)
        assert finish == "interrupted"
        assert text.startswith("".join(event.text for event in seen)), "what was seen is stored"
        assert_all_in_place(id)

    def test_cancelled_through_its_row_stops_and_keeps_its_text(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        reading = desk.ask(id, "q", gate)
        assert gate.reached.wait(5)
        RunService.cancel(ALICE, RunService.get(ALICE, reading.run_id))
        *_, last = read(reading)
        assert last.finish_reason is FinishReason.INTERRUPTED
        assert answers(id) == [("first ", "interrupted")]
        assert run_rows(id, "status, outcome") == [("interrupted", "cancelled")]
        with pytest.raises(Busy):
            RunService.cancel(ALICE, RunService.get(ALICE, reading.run_id))

    def test_is_stored_as_interrupted_at_shutdown(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        desk.ask(id, "q", gate)
        assert gate.reached.wait(5)
        desk.workers.close()
        assert answers(id) == [("first ", "interrupted")]
        assert run_rows(id, "outcome") == [("shutdown",)]

    def test_waits_for_those_who_came_before(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        desk.ask(id, "q0", gate)
        assert gate.reached.wait(5)
        threads = []
        for n in range(1, 6):
            threads.append(threading.Thread(target=lambda n=n: read(desk.ask(id, f"q{n}")), daemon=True))
            threads[-1].start()
            wait_for(lambda n=n: len(run_rows(id)) == n + 1)
        gate.opened.set()
        for thread in threads:
            thread.join(20)
        assert [e["content"] for e in load(id).entries if e["role"] == "user"] == [f"q{n}" for n in range(6)]
        assert_all_in_place(id)

    @pytest.mark.settings(runs={"poll": 0.05, "queue_timeout": 0.2})
    def test_that_waited_too_long_stores_nothing(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        desk.ask(id, "q0", gate)
        assert gate.reached.wait(5)
        for policy in (OnConflict.QUEUE, OnConflict.REJECT):
            with pytest.raises(Busy):
                desk.ask(id, "q1", on_conflict=policy)
        assert len(run_rows(id)) == 1
        assert len(load(id).entries) == 2

    def test_may_interrupt_the_one_before(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        desk.ask(id, "q0", gate)
        assert gate.reached.wait(5)
        read(desk.ask(id, "q1", lambda: says("second"), on_conflict=OnConflict.INTERRUPT))
        assert answers(id) == [("first ", "interrupted"), ("second", "stop")]
        assert_all_in_place(id)

    def test_being_answered_is_not_deleted_or_rewound(self, desk: Desk, gate: Gate) -> None:
        id = desk.session()
        read(desk.ask(id, "q0"))
        reading = desk.ask(id, "q1", gate)
        assert gate.reached.wait(5)
        for refused in (
            lambda: ConversationService.delete_turn(ALICE, id, reading.turn_id),
            lambda: ConversationService.rewind(ALICE, id, 2),
            lambda: ConversationService.give_feedback(ALICE, id, reading.turn_id, True),
        ):
            with pytest.raises(Busy):
                refused()
        [first] = [turn for turn in turn_ids(load(id).entries) if turn != reading.turn_id]
        assert ConversationService.delete_turn(ALICE, id, first)
        gate.opened.set()
        read(reading)
        assert turn_ids(load(id).entries) == [reading.turn_id]
        assert_all_in_place(id)


def test_a_strangers_run_and_an_unknown_one_look_alike(id: str) -> None:
    start = begin(id, "t1")
    for principal, run_id in ((Principal("stranger"), start.id), (ALICE, "unknown")):
        with pytest.raises(NotFound):
            RunService.get(principal, run_id)
    assert RunService.list(Principal("stranger"), id) == []


def test_a_session_of_the_stranger_is_not_deleted_under_its_run(id: str) -> None:
    begin(id, "t1")
    with connection():
        assert Conversation.select().count() == 1
        assert CONVERSATIONS.delete("stranger", [id]) == set()
    assert run_rows(id) == [("t1", "active", None)]
