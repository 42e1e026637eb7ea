"""Any sequence of questions, failures, stops, deletes, votes and restarts: each answer keeps its own passages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conf.settings import Settings
from db.database import connection, database, fetch, open_database
from db.document import API4_CONVERSATIONS, CONVERSATIONS, PagedDocument
from db.ids import new_id
from db.models import Dialog
from services.api4_conversation_service import API4ConversationService
from services.completions import Ask, Completions, Reading
from services.conversation_service import ConversationService
from services.dialog_service import DialogService
from services.doctor import Doctor
from services.events import Citations, End, Event, FinishReason, ReasoningDelta, Sources, TextDelta
from services.principal import Principal
from services.runs.rows import RunService
from services.runs.workers import Workers
from services.structure_answer import END_THINK, THINK
from tests.factories import DialogFactory
from tests.fakes import Gate, ScriptedModels, chunk, fails, says
from tests.invariants import assert_sound, counters

TABLES: dict[PagedDocument, type[ConversationService]] = {
    CONVERSATIONS: ConversationService, API4_CONVERSATIONS: API4ConversationService,
}


@dataclass
class Told:
    """A turn as its reader saw it."""

    id: str
    question: str
    text: str
    chunks: list[str]
    finish: str | None
    citations: list[int] | None = None
    thumbup: bool | None = None


@dataclass
class Known:
    """A session as its user remembers it."""

    id: str
    document: PagedDocument
    prologue: str
    turns: list[Told] = field(default_factory=list)
    imported: bool = False
    revision: int = -1
    next_seq: int = 0

    @property
    def service(self) -> type[ConversationService]:
        return TABLES[self.document]


class NextAnswer:
    """A model that plays whatever the step says."""

    name = "next"

    def __init__(self) -> None:
        self.play: Callable[[], Iterator[Event]] = says

    def stream(self, request: Any) -> Iterator[Event]:
        return self.play()


def thinks_and_says(*texts: str, chunks: tuple[str, ...]) -> Iterator[Event]:
    yield Sources([chunk(name) for name in chunks])
    yield ReasoningDelta("hm ")
    for text in texts:
        yield TextDelta(text)
    yield Citations([0], [])
    yield End(FinishReason.LENGTH)


def fails_after_sources(*texts: str, chunks: tuple[str, ...]) -> Iterator[Event]:
    yield Sources([chunk(name) for name in chunks])
    yield from fails(*texts)


def crashes(*texts: str) -> Iterator[Event]:
    for text in texts:
        yield TextDelta(text)
    raise ZeroDivisionError("a bug in a model adapter")


ANSWERS: dict[str, Callable[[str], Iterator[Event]]] = {
    "with chunks": lambda name: says("about ", name, chunks=(f"{name}-a", f"{name}-b")),
    "without": lambda name: says("plainly ", name),
    "with reasoning": lambda name: thinks_and_says("thought ", name, chunks=(f"{name}-t",)),
    "empty": lambda name: says(),
    "nothing at all": lambda name: iter(()),
    "failing before tokens": lambda name: fails(),
    "failing after tokens": lambda name: fails("half ", name),
    "failing after sources": lambda name: fails_after_sources("half ", name, chunks=(f"{name}-f",)),
    "crashing": lambda name: crashes("bug ", name),
    "dirty": lambda name: says("nul\x00 ", "half \ud83d", "\ude00 lone \ud800", chunks=(f"{name}-d",)),
}
LENGTHS = st.sampled_from([1, 30, 300, 3000])
SOME_ANSWERS = st.lists(st.tuples(st.sampled_from(list(ANSWERS)), LENGTHS), min_size=1, max_size=3)


class Conversations(RuleBasedStateMachine):
    """The services on one engine; `base` and its database are the test's, the tenant is the example's."""

    base: Settings
    sessions = Bundle("sessions")

    @initialize(prologue=st.sampled_from(["", "Welcome."]))
    def open(self, prologue: str) -> None:
        self.principal = Principal(new_id())
        self.limit = 900
        self.known: list[Known] = []
        self.asked = 0
        self.model = NextAnswer()
        self.start_process()
        with connection():
            self.dialog: Dialog = DialogFactory(
                tenant_id=self.principal.tenant_id, prompt_config={"prologue": prologue}
            )

    def start_process(self) -> None:
        settings = self.base.model_copy(
            update={"document": self.base.document.model_copy(update={"page_bytes": self.limit})}
        )
        open_database(settings)
        self.workers = Workers(settings)
        self.workers.open()
        self.completions = Completions(settings, self.workers, ScriptedModels())

    def stop_process(self) -> None:
        self.workers.close()
        database.obj.close_all()

    def teardown(self) -> None:
        if hasattr(self, "workers"):
            for document in TABLES:
                with connection():
                    ids = [session.id for session in self.known if session.document is document]
                    assert document.delete(self.principal.tenant_id, ids or ["none"]) == set(ids)
            self.doctor_finds_nothing()
            self.stop_process()

    # -- what a user does -----------------------------------------------------------------------

    @precondition(lambda self: len(self.known) < 4)
    @rule(target=sessions, document=st.sampled_from(list(TABLES)))
    def create(self, document: PagedDocument) -> Known:
        row = TABLES[document].create(self.principal, self.dialog)
        return self.remember(Known(row.id, document, self.dialog.prompt_config["prologue"]))

    @precondition(lambda self: len(self.known) < 4)
    @rule(target=sessions, document=st.sampled_from(list(TABLES)), turns=st.integers(0, 4), placeholder=st.booleans())
    def import_ragflows(self, document: PagedDocument, turns: int, placeholder: bool) -> Known:
        names = [f"old{n}" for n in range(turns)]
        message: list[Any] = [{"role": "assistant", "content": "Old hello."}]
        for name in names:
            message += [{"role": "user", "content": name, "id": name}, {"role": "assistant", "content": "old " * 40}]
        reference = [{}] * placeholder + [{"chunks": [{"chunk_id": name}], "doc_aggs": []} for name in names]
        with connection():
            row = document.row.create(tenant_id=self.principal.tenant_id, dialog_id=self.dialog.id, format=0,
                                      next_seq=0, message=message, reference=reference)
        told = [Told(name, name, "old " * 40, [name], None) for name in names]
        return self.remember(Known(row.id, document, "Old hello.", told, imported=True))

    def remember(self, session: Known) -> Known:
        self.known.append(session)
        return session

    @rule(session=sessions, answers=SOME_ANSWERS)
    def ask(self, session: Known, answers: list[tuple[str, int]]) -> None:
        for how, length in answers:
            text = self.next_question(length)
            self.model.play = lambda how=how, text=text: ANSWERS[how](text[:8].strip())
            self.take(session, text, self.put(session, text))

    @rule(session=sessions, words=st.sampled_from([(), ("some ",)]), with_chunks=st.booleans())
    def ask_and_stop(self, session: Known, words: tuple[str, ...], with_chunks: bool) -> None:
        text = self.next_question(20)
        gate = Gate(*words, chunks=(f"{text[:8].strip()}-s",) if with_chunks else ())
        self.model.play = gate
        reading = self.put(session, text)
        assert gate.reached.wait(10)
        self.completions.cancel(self.principal, RunService.get(self.principal, reading.run_id))
        gate.opened.set()
        self.take(session, text, reading)
        assert session.turns[-1].finish == "interrupted"

    def next_question(self, length: int) -> str:
        self.asked += 1
        return f"q{self.asked:<7}" + "x" * length

    def put(self, session: Known, text: str, id: str | None = None) -> Reading:
        question = {"role": "user", "content": text} | ({"id": id} if id else {})
        return self.completions.ask(
            self.principal, Ask(question, self.dialog, session.id, self.model, document=session.document)
        )

    def take(self, session: Known, text: str, reading: Reading) -> None:
        seen = self.read(reading)
        session.turns.append(Told(reading.turn_id, text, **seen))

    def read(self, reading: Reading) -> dict[str, Any]:
        """What the stream carried, by its own events."""
        text, chunks, citations = "", [], None
        for event in (each.event for each in reading.follow(silence=10) if each is not None):
            if isinstance(event, TextDelta | ReasoningDelta):
                text += event.text
            elif isinstance(event, Sources):
                chunks = [each["id"] for each in event.chunks]
            elif isinstance(event, Citations):
                citations = event.cited
            elif isinstance(event, End):
                return {"text": text, "chunks": chunks, "citations": citations, "finish": str(event.finish_reason)}
            elif type(event).__name__ in ("ReasoningStart", "ReasoningEnd"):
                text += THINK if type(event).__name__ == "ReasoningStart" else END_THINK
        raise AssertionError("the stream had no end")

    @rule(session=sessions, which=st.integers(0, 30))
    def ask_again(self, session: Known, which: int) -> None:
        """The same question under its own id is answered from the store and adds nothing."""
        turn = self.some_turn(session, which)
        if turn is None or turn.finish is None:
            return
        self.model.play = lambda: says("must not be asked")
        seen = self.read(self.put(session, turn.question, turn.id))
        assert seen == {"text": turn.text, "chunks": turn.chunks, "citations": turn.citations, "finish": turn.finish}

    @rule(session=sessions, which=st.integers(0, 30))
    def delete_turn(self, session: Known, which: int) -> None:
        turn = self.some_turn(session, which)
        found = session.service.delete_turn(self.principal, session.id, turn.id if turn else "unknown")
        assert found == (turn is not None)
        session.turns = [kept for kept in session.turns if kept is not turn]

    @rule(session=sessions, which=st.integers(0, 30), up=st.booleans(), text=st.sampled_from([None, "bad", "x" * 700]))
    def vote(self, session: Known, which: int, up: bool, text: str | None) -> None:
        turn = self.some_turn(session, which)
        found = session.service.give_feedback(
            self.principal, session.id, turn.id if turn else "unknown", up, text
        )
        assert found == (turn is not None)
        if turn:
            turn.thumbup = up

    @rule(session=sessions, which=st.integers(0, 30), entry=st.integers(0, 1))
    def rewind(self, session: Known, which: int, entry: int) -> None:
        turn = self.some_turn(session, which)
        if turn is None:
            assert session.service.rewind(self.principal, session.id, 10**6) == 0
            return
        with connection():
            session.document.find_turn(self.principal.tenant_id, session.id, turn.id)
            stored = session.document.load_turn(self.principal.tenant_id, session.id, turn.id).entries
        at = session.turns.index(turn)
        removed = session.service.rewind(self.principal, session.id, stored[entry]["seq"])
        assert removed == 2 * (len(session.turns) - at)
        del session.turns[at:]

    def some_turn(self, session: Known, which: int) -> Told | None:
        return session.turns[which % len(session.turns)] if session.turns else None

    @rule(prologue=st.sampled_from(["", "Changed.", "p" * 1000]))
    def change_prologue(self, prologue: str) -> None:
        self.dialog = DialogService.update_by_id(
            self.principal, self.dialog.id, {"prompt_config": {"prologue": prologue}}
        )

    @rule(limit=st.sampled_from([1, 400, 900, 5000]))
    def restart_with_another_page_limit(self, limit: int) -> None:
        self.stop_process()
        self.limit = limit
        self.start_process()

    # -- what must hold after each step ---------------------------------------------------------

    @invariant()
    def every_answer_has_its_own_passages(self) -> None:
        for session in getattr(self, "known", []):
            text = session.service.text(self.principal, session.id).parsed()
            with connection():
                whole = session.document.load(self.principal.tenant_id, session.id)
            assert (text.entries, text.slots) == (whole.entries, whole.slots)
            entries = list(whole.entries)
            if session.prologue:
                first = entries.pop(0)
                assert (first["content"], first.get("id")) == (session.prologue, None)
            assert [entry["content"] for entry in entries[::2]] == [turn.question for turn in session.turns]
            assert [entry["content"] for entry in entries[1::2]] == [turn.text for turn in session.turns]
            assert [slot["message_id"] for slot in whole.slots] == [turn.id for turn in session.turns]
            assert [[each["id"] for each in slot["chunks"]] for slot in whole.slots] == [
                turn.chunks for turn in session.turns
            ]
            assert [slot.get("citations") for slot in whole.slots] == [turn.citations for turn in session.turns]
            assert [entry.get("thumbup") for entry in entries[1::2]] == [turn.thumbup for turn in session.turns]

    @invariant()
    def counters_and_index_agree_with_the_rows(self) -> None:
        for session in getattr(self, "known", []):
            with connection():
                counted = counters(session.id, session.document)
                if counted["next_seq"]:
                    assert_sound(session.id, session.document)
            assert counted["revision"] >= session.revision, "a revision only grows"
            assert counted["next_seq"] >= session.next_seq, "a seq isn't given back"
            session.revision, session.next_seq = counted["revision"], counted["next_seq"]

    @invariant()
    def doctor_finds_nothing(self) -> None:
        assert list(Doctor(retention_days=30).examine()) == []

    @invariant()
    def nothing_runs_and_votes_are_counted(self) -> None:
        if not getattr(self, "known", []):
            return
        with connection():
            assert fetch("SELECT count(*) FROM {run} WHERE tenant_id = %s AND status IN ('active', 'queued')",
                         [self.principal.tenant_id]) == [(0,)]
            for session in self.known:
                if session.document is API4_CONVERSATIONS:
                    liked = sum(turn.thumbup is True for turn in session.turns)
                    [(counted,)] = fetch("SELECT thumb_up FROM {api_4_conversation} WHERE id = %s", [session.id])
                    assert counted >= liked


@pytest.mark.timeout(600)  # shrinking a failure to the sequence that is printed takes minutes
def test_any_sequence_of_operations_keeps_every_answer_with_its_own_passages(store: Settings) -> None:
    class OnThisEngine(Conversations):
        base = store

    run_state_machine_as_test(OnThisEngine, settings=hypothesis_settings(
        max_examples=25, stateful_step_count=20, deadline=None, derandomize=True, print_blob=False,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    ))
