"""The journal: what a reader saw is on disk, and any process can read it, each event once and in order."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from peewee import OperationalError

from conf.settings import load_settings
from db.database import change, connection, fetch, transaction
from db.document import CONVERSATIONS
from db.models import Dialog
from services.completions import Ask, Completions, OnConflict
from services.conversation_service import ConversationService
from services.errors import Busy, Unavailable
from services.events import (
    Citations,
    Custom,
    End,
    ErrorCode,
    Event,
    FinishReason,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Sources,
    State,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolResult,
    Usage,
)
from services.principal import Principal
from services.runs import journal, live
from services.runs.follower import Follower
from services.runs.recovery import recover
from services.runs.rows import RunService
from services.runs.tape import WINDOW, Tape
from services.runs.values import Start
from services.runs.workers import Workers
from tests.factories import DialogFactory
from tests.fakes import Gate, ScriptedModel, ScriptedModels, chunk, says

ALICE = Principal("acme")
EVERY_KIND: list[Event] = [
    TextDelta("täxt 日本 \U0001f469\u200d\U0001f467"), ReasoningStart(), ReasoningDelta("hm"), ReasoningEnd(),
    Sources([chunk("a")], [{"doc_id": "d"}]), Citations([0, 2], [{"doc_id": "d"}]), ToolCallStart("c", "search"),
    ToolCallArguments("c", '{"q": 1}'), ToolCallEnd("c"), ToolResult("c", "found"),
    State({"deep": {"er": [1, None]}}), Custom("mine", [1, "2"]),
    End(FinishReason.ERROR, Usage(3, 4), ErrorCode.TIMEOUT, "Too slow."), End(),
]


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_every_kind_of_event_is_read_as_it_was_written(event: Event) -> None:
    assert journal.decode(journal.encode([event])) == [event]


def test_an_ends_detail_is_not_for_readers() -> None:
    assert "secret" not in journal.encode([End(detail="secret")])


def start(owner: str, lease: float = 60) -> Start:
    with connection():
        id = CONVERSATIONS.create({"tenant_id": "acme", "dialog_id": "chat"}).id
    begun = Start("acme", id, {"role": "user", "content": "q", "id": "t"})
    RunService.begin(begun, owner, lease)
    return begun


def write(run: Start, owner: str, last: int, *texts: str) -> bool:
    with connection():
        return run.id in journal.write(owner, [(run.id, last, journal.encode([TextDelta(text) for text in texts]))])


def said(run_id: str, after: int = 0) -> list[tuple[int, str]]:
    with connection():
        return [(each.n, each.event.text) for each in journal.read(run_id, after) if isinstance(each.event, TextDelta)]


class TestRows:
    def test_are_read_from_any_number_on(self, store) -> None:
        run = start("me")
        assert write(run, "me", 2, "a", "b") and write(run, "me", 3, "c")
        assert said(run.id) == [(1, "a"), (2, "b"), (3, "c")]
        assert said(run.id, 1) == [(2, "b"), (3, "c")]
        assert said(run.id, 3) == said(run.id, 9) == said("unknown") == []

    def test_that_overlap_after_a_flush_was_tried_again_show_each_event_once(self, store) -> None:
        run = start("me")
        for last, texts in ((2, "ab"), (2, "ab"), (4, "abcd"), (3, "bc"), (5, "e")):
            assert write(run, "me", last, *texts)
        assert said(run.id) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]

    def test_of_a_run_that_is_another_s_or_over_or_gone_drop_out_and_the_others_stay(self, store) -> None:
        mine, over, taken = start("me"), start("me", -1), start("them")
        assert recover(Principal.system()) == 1
        rows = [(run.id, 1, journal.encode([TextDelta("x")])) for run in (mine, over, taken)]
        with connection():
            assert journal.write("me", [*rows, ("gone", 1, "[]")]) == {mine.id}
        assert said(over.id) == said(taken.id) == []

    def test_go_when_their_grace_is_over_and_not_before(self, store) -> None:
        run, stateless = start("me", -1), Start("acme", None, {"role": "user", "content": "q", "id": "s"})
        RunService.begin(stateless, "me", -1)
        write(run, "me", 1, "x")
        assert recover(Principal.system()) == 2
        with connection():
            journal.forget(60)
            assert said(run.id) == [(1, "x")]
            journal.forget(-1)
            assert fetch("SELECT count(*) FROM {run_event}") == [(0,)]
            assert fetch("SELECT id, last_n FROM {run}") == [(run.id, 0)], "a run that stored nothing goes with it"


class TestFence:
    def test_a_recoverer_waits_while_the_owner_writes(self, store, engine: str) -> None:
        """What is committed later would have been seen and lost."""
        if engine == "sqlite":
            pytest.skip("SQLite has one writer anyway")
        run = start("me", -1)
        told: list[int] = []
        with connection(), transaction():
            journal.write("me", [(run.id, 1, journal.encode([TextDelta("seen")]))])
            other = threading.Thread(target=lambda: told.append(recover(Principal.system())))
            other.start()
            other.join(10)
            assert told == [0]
        assert recover(Principal.system()) == 1
        with connection():
            assert CONVERSATIONS.load("acme", str(run.conversation_id)).entries[-1]["content"] == "seen"

    def test_an_owner_whose_run_was_recovered_writes_nothing_more(self, store) -> None:
        run = start("me", -1)
        assert write(run, "me", 1, "seen")
        assert recover(Principal.system()) == 1
        assert not write(run, "me", 2, "late")

    def test_recovery_closes_open_reasoning_and_keeps_the_sources(self, store) -> None:
        run = start("me", -1)
        events = [Sources([chunk("a")]), ReasoningStart(), ReasoningDelta("hm")]
        with connection():
            journal.write("me", [(run.id, 3, journal.encode(events))])
        assert recover(Principal.system()) == 1
        with connection():
            whole = CONVERSATIONS.load("acme", str(run.conversation_id))
            assert whole.entries[-1]["content"] == "<think>hm</think>"
            assert [each["id"] for each in whole.slots[-1]["chunks"]] == ["a"]
            assert [type(each.event) for each in journal.read(run.id, 3)] == [ReasoningEnd, End]


class TestTape:
    def test_gives_what_is_behind_a_number(self) -> None:
        tape = Tape()
        tape.show([TextDelta("a"), TextDelta("b")])
        assert [each.n for each in tape.after(0, 0) or []] == [1, 2]
        assert [each.n for each in tape.after(1, 0) or []] == [2]
        assert tape.after(2, 0) == []

    def test_says_when_it_has_forgotten(self) -> None:
        tape = Tape()
        tape.show([TextDelta(str(n)) for n in range(WINDOW + 2)])
        assert tape.after(1, 0) is None
        assert [each.n for each in tape.after(2, 0) or []][:2] == [3, 4]

    def test_wakes_all_who_wait(self) -> None:
        tape, got = Tape(), []
        threads = [threading.Thread(target=lambda: got.append(tape.after(0, 10))) for _ in range(3)]
        for thread in threads:
            thread.start()
        tape.show([End()], over=True)
        for thread in threads:
            thread.join(5)
        assert [len(each) for each in got] == [1, 1, 1]


class Replica:
    """A process of its own, as far as the database can tell."""

    def __init__(self, settings: Any, owner: str, dialog: Dialog) -> None:
        self.workers = Workers(settings)
        self.workers.owner = self.workers._keeper.owner = f"{owner}:1:1.5"
        self.completions = Completions(settings, self.workers, ScriptedModels())
        self.model = ScriptedModel()
        self.dialog = dialog
        self.workers.open()

    def ask(self, session_id: str, text: str, answer: Any = None, **more: Any) -> Any:
        if answer:
            self.model.script(text, answer)
        return self.completions.ask(
            ALICE, Ask({"role": "user", "content": text}, self.dialog, session_id, self.model, **more)
        )

    def read(self, run_id: str) -> Any:
        return self.completions.read(ALICE, RunService.get(ALICE, run_id))


@pytest.fixture
def dialog(store) -> Dialog:
    with connection():
        return DialogFactory(tenant_id="acme", prompt_config={"prologue": ""})


@pytest.fixture
def replicas(store, dialog: Dialog) -> Iterator[tuple[Replica, Replica]]:
    both = Replica(store, "a", dialog), Replica(store, "b", dialog)
    yield both
    for replica in both:
        replica.workers.close()


@pytest.fixture
def id(dialog: Dialog) -> str:
    return str(ConversationService.create(ALICE, dialog).id)


def events(reading: Any) -> list[tuple[int, Event]]:
    return [(each.n, each.event) for each in reading.follow(silence=0.2) if each is not None]


def text_of(read: list[tuple[int, Event]]) -> str:
    assert [n for n, _ in read] == list(range(1, len(read) + 1)), "each once and in order"
    return "".join(event.text for _, event in read if isinstance(event, TextDelta))


class TestAnotherProcess:
    def test_reads_a_run_while_it_is_answered_each_event_once(self, replicas, id: str) -> None:
        here, there = replicas
        gate = Gate("one ", "two ", after=("three",), chunks=("c",))
        mine = here.ask(id, "q", gate)
        assert gate.reached.wait(5)
        got: list[Any] = []
        readers = [threading.Thread(target=lambda: got.append(events(there.read(mine.run_id)))) for _ in range(3)]
        for reader in readers:
            reader.start()
        time.sleep(0.3)
        gate.opened.set()
        for reader in readers:
            reader.join(10)
        own = events(mine)
        assert got == [own] * 3
        assert text_of(own) == "one two three"

    def test_reads_a_run_of_thousands_of_deltas_that_memory_does_not_hold(self, replicas, id: str) -> None:
        here, there = replicas
        words = [f"{n} " for n in range(4 * WINDOW)]
        mine = here.ask(id, "q", lambda: says(*words))
        assert text_of(events(there.read(mine.run_id))) == "".join(words)
        assert text_of(events(mine)) == "".join(words), "its own slow reader too"
        assert text_of(events(there.read(mine.run_id))) == "".join(words), "and when it is over"

    def test_reads_on_when_every_connection_was_lost(self, replicas, id: str, engine: str) -> None:
        if engine == "sqlite":
            pytest.skip("a file has no connection to lose")
        here, there = replicas
        gate = Gate("one ", after=("two",))
        mine = here.ask(id, "q", gate)
        reading = there.read(mine.run_id).follow(silence=0.2)
        assert next(each for each in reading if each is not None).event == TextDelta("one ")
        with connection():
            fetch("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'""")
        gate.opened.set()
        rest = [each.event for each in reading if each is not None]
        assert (rest[0], rest[-1].finish_reason) == (TextDelta("two"), FinishReason.STOP)
        assert there.workers.is_well and here.workers.is_well

    def test_that_meets_trouble_gives_back_a_connection_that_listens_to_nothing(self, replicas, engine: str) -> None:
        if engine == "sqlite":
            pytest.skip("nothing listens to a file")

        class Troubled(Follower):
            def _open(self) -> Any:
                raise OperationalError("canceling statement due to lock timeout")

        with connection():
            with pytest.raises(OperationalError):
                Troubled()._follow_with_connection()
            assert fetch("SELECT * FROM pg_listening_channels()") == []

    def test_stops_a_run_by_its_row(self, replicas, id: str) -> None:
        here, there = replicas
        gate = Gate("half ")
        mine = here.ask(id, "q", gate)
        assert gate.reached.wait(5)
        asked = time.monotonic()
        there.completions.cancel(ALICE, RunService.get(ALICE, mine.run_id))
        *_, (_, last) = events(there.read(mine.run_id))
        assert (last.finish_reason, time.monotonic() - asked < 2) == (FinishReason.INTERRUPTED, True)
        gate.opened.set()

    def test_interrupts_and_takes_the_session_over(self, replicas, id: str) -> None:
        here, there = replicas
        gate = Gate("half ")
        here.ask(id, "q1", gate)
        assert gate.reached.wait(5)
        next_one = there.ask(id, "q2", lambda: says("new"), on_conflict=OnConflict.INTERRUPT)
        assert text_of(events(next_one)) == "new"
        gate.opened.set()
        with connection():
            entries = CONVERSATIONS.load("acme", id).entries
        assert [entry["content"] for entry in entries] == ["q1", "half ", "q2", "new"]

    def test_joins_instead_of_asking_twice(self, replicas, id: str) -> None:
        here, there = replicas
        gate = Gate("half ")
        here.model.script("q", gate)
        mine = here.ask(id, "q", idempotency_key="k")
        assert gate.reached.wait(5)
        joined = there.ask(id, "q", lambda: says("must not be asked"), idempotency_key="k")
        assert joined.run_id == mine.run_id
        gate.opened.set()
        assert text_of(events(joined)) == "half done"
        again = there.ask(id, "q", idempotency_key="k")
        assert text_of(events(again)) == "half done"

    def test_is_told_when_the_session_goes_under_the_run(self, replicas, id: str, dialog: Dialog) -> None:
        here, there = replicas
        gate = Gate("half ")
        mine = here.ask(id, "q", gate)
        assert gate.reached.wait(5)
        reading = there.read(mine.run_id)
        ConversationService.delete(ALICE, dialog.id, [id])
        *_, (_, last) = events(reading)
        assert (last.finish_reason, last.error_code) == (FinishReason.ERROR, ErrorCode.INTERNAL_ERROR)
        gate.opened.set()

    def test_leaves_no_journal_of_a_deleted_session_when_a_write_met_the_deletion(
        self, replicas, id: str, dialog: Dialog, monkeypatch
    ) -> None:
        write, here = journal.write, replicas[0]

        def write_after_the_deletion(owner: str, rows: Any) -> set[str]:
            """As PostgreSQL does where the write's snapshot is older than the deletion."""
            with connection():
                for run_id, n, payload in rows:
                    change("INSERT INTO {run_event} (run_id, n, payload) VALUES (%s, %s, %s)", [run_id, n, payload])
            return {row[0] for row in rows}

        gate = Gate("half ")
        mine = here.ask(id, "q", gate)
        assert gate.reached.wait(5)
        monkeypatch.setattr(journal, "write", write_after_the_deletion)
        ConversationService.delete(ALICE, dialog.id, [id])
        gate.opened.set()
        assert events(mine)[-1][1].finish_reason is FinishReason.ERROR
        monkeypatch.setattr(journal, "write", write)
        with connection():
            assert fetch("SELECT count(*) FROM {run_event}") == [(0,)]

    def test_waits_for_its_turn_behind_the_other(self, replicas, id: str) -> None:
        here, there = replicas
        gate = Gate("half ")
        first = here.ask(id, "q1", gate)
        assert gate.reached.wait(5)
        told: list[Any] = []
        second = threading.Thread(target=lambda: told.append(events(there.ask(id, "q2", lambda: says("two")))))
        second.start()
        time.sleep(0.3)
        assert not told
        gate.opened.set()
        assert text_of(events(first)) == "half done"
        second.join(10)
        assert text_of(told[0]) == "two"


class TestBackPressure:
    @pytest.mark.parametrize("durability", ["before_send", "after_send"])
    def test_a_database_that_stalls_slows_the_model_and_drops_nothing(self, store, dialog: Dialog, id: str,
                                                                    durability: str) -> None:
        settings = load_settings(database=store.database, stream={"durability": durability}, runs={"poll": 0.05})
        replica = Replica(settings, "a", dialog)
        asked: list[int] = []

        def endless() -> Iterator[Event]:
            for n in range(2_000):
                asked.append(n)
                yield TextDelta(f"{n} ")
            yield End()

        stalled = threading.Event()
        write, journal.write = journal.write, lambda *rows: (stalled.wait(10), write(*rows))[1]
        try:
            reading = replica.ask(id, "q", endless)
            time.sleep(0.5)
            assert len(asked) <= 258, "the worker waits for the journal"
            stalled.set()
            assert text_of(events(reading)) == "".join(f"{n} " for n in range(2_000))
        finally:
            journal.write = write
            replica.workers.close()

    def test_a_reader_that_stopped_reading_slows_nobody_and_gets_it_all_later(self, replicas, id: str) -> None:
        here, _ = replicas
        words = [f"{n} " for n in range(5 * WINDOW)]
        reading = here.ask(id, "q", lambda: says(*words))
        stuck = reading.follow(silence=0.2)
        first = next(each for each in stuck if each is not None)
        assert text_of(events(here.read(reading.run_id))) == "".join(words), "another reader has the end"
        rest = [(each.n, each.event) for each in stuck if each is not None]
        assert text_of([(first.n, first.event), *rest]) == "".join(words)

    @pytest.mark.settings(runs={"limit": 2, "poll": 0.05})
    def test_a_question_that_waits_for_its_turn_is_one_of_those_that_were_taken(self, replicas, id: str) -> None:
        here, _ = replicas
        gate = Gate("half ")
        here.ask(id, "q1", gate)
        assert gate.reached.wait(5)
        told: list[Any] = []
        waiting = threading.Thread(target=lambda: told.append(here.ask(id, "q2", lambda: says("two"))))
        waiting.start()
        time.sleep(0.3)
        gate.opened.set()
        waiting.join(10)
        assert text_of(events(told[0])) == "two"

    @pytest.mark.settings(runs={"limit": 2, "poll": 0.05})
    def test_a_process_takes_no_more_runs_than_its_limit(self, replicas, dialog: Dialog) -> None:
        here, _ = replicas
        gates = [Gate("half"), Gate("half")]
        for n, gate in enumerate(gates):
            here.ask(str(ConversationService.create(ALICE, dialog).id), f"q{n}", gate)
        with pytest.raises(Unavailable) as refused:
            here.ask(str(ConversationService.create(ALICE, dialog).id), "q3")
        assert refused.value.fields["retry_after"] > 0
        for gate in gates:
            gate.opened.set()


class TestTheLastWrite:
    @pytest.mark.parametrize("lost", ["before its commit", "at its commit"])
    def test_whose_connection_is_lost_is_tried_again_and_stored_once(self, replicas, id: str, monkeypatch,
                                                                    lost: str) -> None:
        here, there = replicas
        end, failures = RunService.end, [OperationalError("server closed the connection unexpectedly")]

        def end_once_in_vain(*given: Any) -> bool:
            done = end(*given) if lost == "at its commit" or not failures else False
            if failures:
                raise failures.pop()
            return done

        monkeypatch.setattr(RunService, "end", end_once_in_vain)
        read = events(here.ask(id, "q", lambda: says("one ", "two")))
        assert text_of(read) == "one two" and read[-1][1].finish_reason is FinishReason.STOP
        assert events(there.read(RunService.list(ALICE, id)[0].id)) == read
        with connection():
            assert [entry["content"] for entry in CONVERSATIONS.load("acme", id).entries] == ["q", "one two"]

    def test_that_can_never_be_made_tells_the_reader_so(self, replicas, id: str, monkeypatch) -> None:
        def fail(*given: Any) -> bool:
            raise OperationalError("no such host")

        monkeypatch.setattr(RunService, "end", fail)
        monkeypatch.setattr(live, "STORING", 0.3)
        *_, (_, last) = events(replicas[0].ask(id, "q", lambda: says("one")))
        assert (last.finish_reason, last.error_message) == (FinishReason.ERROR, live.NOT_STORED)

    def test_that_meets_a_bug_leaves_no_reader_waiting(self, replicas, id: str, monkeypatch) -> None:
        def fail(*given: Any) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(RunService, "end", fail)
        monkeypatch.setattr(threading, "excepthook", lambda caught: None)
        reading = replicas[0].ask(id, "q", lambda: says("one"))
        *_, (_, last) = events(reading)
        assert (last.finish_reason, last.error_message) == (FinishReason.ERROR, live.NOT_STORED)
        assert replicas[0].workers.find(reading.run_id) is None


class TestTheFirstWrite:
    def test_whose_connection_is_lost_at_its_commit_asks_once(self, replicas, id: str, monkeypatch) -> None:
        begin, failures = RunService.begin, [OperationalError("server closed the connection unexpectedly")]

        def begin_and_lose(*given: Any) -> None:
            begin(*given)
            if failures:
                raise failures.pop()

        monkeypatch.setattr(RunService, "begin", begin_and_lose)
        assert text_of(events(replicas[0].ask(id, "q", lambda: says("one")))) == "one"
        with connection():
            assert [entry["content"] for entry in CONVERSATIONS.load("acme", id).entries] == ["q", "one"]


def test_a_clock_that_jumps_changes_nothing_but_what_is_shown(replicas, id: str, monkeypatch) -> None:
    gate = Gate("half ")
    reading = replicas[0].ask(id, "q1", gate)
    assert gate.reached.wait(5)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400)
    gate.opened.set()
    assert text_of(events(reading)) == "half done"
    monkeypatch.setattr(time, "time", lambda: now() + 86_400)
    assert text_of(events(replicas[1].ask(id, "q2", lambda: says("next")))) == "next"
    with connection():
        assert [entry["seq"] for entry in CONVERSATIONS.load("acme", id).entries] == [1, 2, 3, 4]


def test_a_busy_session_refuses_on_every_replica_where_it_is_asked_to(replicas, id: str) -> None:
    gate = Gate("half ")
    replicas[0].ask(id, "q1", gate)
    assert gate.reached.wait(5)
    for replica in replicas:
        with pytest.raises(Busy):
            replica.ask(id, "q2", on_conflict=OnConflict.REJECT)
    gate.opened.set()
