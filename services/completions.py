"""The use case of a question: a run begins, a worker answers, readers follow.

A refusal comes before anything is stored and before the first byte. A question that is stored
already isn't asked twice: its caller joins the run, or gets its stored ending again.
"""

import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import structlog

from conf.settings import Settings
from db.database import connection, retried
from db.document import CONVERSATIONS, PagedDocument
from db.ids import new_id
from db.models import Dialog, Run
from services.errors import Busy, InvalidData, NotFound
from services.events import Answerer, End, ErrorCode, Event, FinishReason, Question
from services.messages import text_of
from services.models import ModelDirectory
from services.principal import Principal
from services.rag.chat_models import ChatModel
from services.rag.pipeline import DialogAnswerer
from services.runs import journal
from services.runs.finding import document_of, stored_input
from services.runs.live import LiveRun, failure
from services.runs.reading import Reading
from services.runs.rows import Occupied, RunService, TurnExists
from services.runs.values import Given, RunStatus, Start
from services.runs.workers import Workers
from services.structure_answer import given_answer, given_slot, replay

HISTORY_ENTRIES = 200
NO_ANSWER = "This question has no stored answer; ask again under a new id."
NOT_KEPT = "Nothing of this answer was stored."
_POLL = 0.1  # seconds between two looks at a queue that another process may move


class OnConflict(StrEnum):
    QUEUE = "queue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True)
class Ask:
    """One question, checked by the route. `session_id` is None where nothing is stored."""

    question: dict[str, Any]
    dialog: Dialog | None
    session_id: str | None
    model: ChatModel
    history: list[dict[str, Any]] | None = None  # the client's own; None: the stored one
    options: dict[str, Any] = field(default_factory=dict)
    kind: str = "chat"
    on_conflict: OnConflict = OnConflict.QUEUE
    idempotency_key: str | None = None
    document: PagedDocument = CONVERSATIONS


class Completions:
    """Asks questions of chats. One a process; it owns no state but its workers."""

    def __init__(self, settings: Settings, workers: Workers, models: ModelDirectory) -> None:
        self.settings = settings.runs
        self.workers = workers
        self.models = models

    def ask(self, principal: Principal, ask: Ask) -> Reading:
        """Start answering, in order of arrival; or join the run that answers this very question.

        Raises Busy (409) after the queue's timeout or by policy, InvalidData where the message id is
        stored with other content, DocumentMissing, Unavailable.
        """
        structlog.contextvars.bind_contextvars(session_id=ask.session_id)
        self.workers.refuse_new()
        start = self._start(principal, ask)
        if ask.session_id is not None:
            known = self._find_turn(principal, ask, start)
            if known:
                return known
        try:
            seq = self._enter(principal, ask, start)
        except TurnExists:
            known = self._find_turn(principal, ask, start)
            if known is None:
                raise InvalidData(f"message id {start.turn_id!r} is used by another message already") from None
            return known
        live = self.workers.launch(start, lambda: self._question(principal, ask, start, seq))
        return _reading(ask.session_id, live)

    def _start(self, principal: Principal, ask: Ask) -> Start:
        question = {"id": new_id(), "created_at": time.time()} | ask.question
        given = _given_history(ask.history or [], str(question["id"]))
        return Start(
            principal.tenant_id, ask.session_id, question, ask.document, given,
            kind=ask.kind, idempotency_key=ask.idempotency_key,
        )

    def _question(
        self, principal: Principal, ask: Ask, start: Start, seq: int | None
    ) -> tuple[Answerer, Question]:
        """The question, whose seq is `seq` where that is known, with what was said before it."""
        history = ask.history
        if history is None and ask.session_id is not None:
            with connection():
                first = seq or ask.document.first_seq(ask.session_id, start.turn_id) or 1
                history = ask.document.load_range(
                    principal.tenant_id, ask.session_id, max(first - HISTORY_ENTRIES, 1), first - 1
                ).entries
        question = Question(text_of(ask.question["content"]), history or [], ask.options)
        return DialogAnswerer(ask.dialog, principal, ask.model, self.models), question

    # -- the session's one active run -----------------------------------------------------------

    def _enter(self, principal: Principal, ask: Ask, start: Start) -> int | None:
        """Make the run active, now or when its turn comes; its question's seq, where it is known."""
        owner, lease = self.workers.owner, self.settings.lease
        try:
            return retried(lambda: RunService.begin(start, owner, lease))
        except Occupied:
            if ask.on_conflict is OnConflict.REJECT:
                raise Busy("this session is answering another question", retry_after=1) from None
        if ask.on_conflict is OnConflict.INTERRUPT:
            self._interrupt(principal, str(ask.session_id))
        with self.workers.queued(start.id):
            retried(lambda: RunService.enqueue(start, owner, lease, self.settings.queue_length))
            try:
                self._wait_for_turn(start)
            except BaseException:
                RunService.withdraw(start.id)
                raise
        return None

    def _wait_for_turn(self, start: Start) -> None:
        deadline = time.monotonic() + self.settings.queue_timeout
        while True:
            try:
                retried(lambda: RunService.promote(start))
                return
            except Occupied:
                left = deadline - time.monotonic()
            if left <= 0:
                raise Busy("this session is still answering earlier questions", retry_after=1)
            self.workers.refuse_when_draining()
            self.workers.wait_for_end(min(left, _POLL))

    def _interrupt(self, principal: Principal, session_id: str) -> None:
        for run in RunService.list(principal, session_id, ["active"]):
            with suppress(Busy):  # it ended by itself meanwhile
                self.cancel(principal, run)

    def cancel(self, principal: Principal, run: Run) -> None:
        """Stop a run; its partial answer is stored. Raises Busy where it has ended."""
        RunService.cancel(principal, run)
        self.workers.cancel(run.id)

    # -- a question that is there already -------------------------------------------------------

    def _find_turn(self, principal: Principal, ask: Ask, start: Start) -> Reading | None:
        session_id = str(ask.session_id)
        run = RunService.find_known(principal, session_id, ask.question.get("id"), ask.idempotency_key)
        turn_id = run.turn_id if run else ask.question.get("id")
        if turn_id is None:
            return None
        question = stored_input(run) if run and run.status == "queued" else self._stored(ask, principal, turn_id)
        if question is None:
            return None
        if run is None:  # its transaction may have ended between the two looks
            run = RunService.find_known(principal, session_id, turn_id, None)
        if text_of(question["content"]) != text_of(ask.question["content"]):
            raise InvalidData(f"message id {turn_id!r} is stored with other content; a new question needs a new id")
        return self.attach(principal, session_id, turn_id, run, ask.document)

    def _stored(self, ask: Ask, principal: Principal, turn_id: str) -> dict[str, Any] | None:
        session_id = str(ask.session_id)
        with connection():
            seq = ask.document.find_turn(principal.tenant_id, session_id, turn_id)
            if seq is None:
                return None
            entries = ask.document.load_range(principal.tenant_id, session_id, seq, seq).entries
        return next((entry for entry in entries if entry["role"] == "user"), None)

    def attach(
        self, principal: Principal, session_id: str | None, turn_id: str, run: Run | None,
        document: PagedDocument = CONVERSATIONS,
    ) -> Reading:
        """Read a known run from its first event: while it is answered, wherever that is, and afterwards.

        Raises Busy where it waits for its turn longer than the queue's timeout, or was withdrawn.
        """
        if run is not None and run.status == RunStatus.QUEUED:
            run = self._wait_for_promotion(principal, run)
        if run is not None and run.status == RunStatus.ACTIVE:
            live = self.workers.find(run.id)
            if live is not None:
                return _reading(session_id, live)
            tape = partial(self.workers.follower.tape, run.id)
            return Reading(run.id, session_id, turn_id, run.started_at or 0.0, tape)
        answered_at, ending = self._ending(principal, session_id, turn_id, run, document)
        said = self._journaled(run)
        run_id = run.id if run else turn_id
        return Reading(run_id, session_id, turn_id, answered_at, stored=said or ending, exact=bool(said))

    def read(self, principal: Principal, run: Run) -> Reading:
        """The same for a run alone. Raises Busy, DocumentMissing."""
        with connection():
            document = document_of(run.tenant_id, run.conversation_id) if run.conversation_id else CONVERSATIONS
        return self.attach(principal, run.conversation_id, str(run.turn_id), run, document)

    def _wait_for_promotion(self, principal: Principal, run: Run) -> Run:
        deadline = time.monotonic() + self.settings.queue_timeout
        while run.status == RunStatus.QUEUED:
            if time.monotonic() > deadline:
                raise Busy("this question still waits for its turn", retry_after=1)
            self.workers.wait_for_end(_POLL)
            try:
                run = RunService.get(principal, run.id)
            except NotFound:
                raise Busy("the waiting question was withdrawn", retry_after=1) from None
        return run

    def _journaled(self, run: Run | None) -> tuple[Event, ...]:
        """All that an ended run said, as long as its journal is kept."""
        if run is None or not run.last_n:
            return ()
        with connection():
            return tuple(each.event for each in journal.read(run.id))

    def _ending(
        self, principal: Principal, session_id: str | None, turn_id: str, run: Run | None, document: PagedDocument
    ) -> tuple[float, tuple[Event, ...]]:
        """When it was answered, and the stored ending as events."""
        if session_id is None:  # nothing was stored but how it ended
            assert run is not None
            code = ErrorCode(run.error_code) if run.error_code else None
            return run.started_at or 0.0, (End(FinishReason(str(run.finish_reason)), None, code, NOT_KEPT),)
        with connection():
            whole = document.load_turn(principal.tenant_id, session_id, turn_id)
        if not whole.entries:
            raise Busy("the waiting question was withdrawn", retry_after=1)
        answer = next((entry for entry in reversed(whole.entries) if entry["role"] == "assistant"), None)
        if answer is None:
            return 0.0, (failure(ErrorCode.INTERNAL_ERROR, NO_ANSWER),)
        return answer.get("created_at") or 0.0, tuple(replay(answer, whole.slots[0] if whole.slots else None))


def _reading(session_id: str | None, live: LiveRun) -> Reading:
    return Reading(
        live.start.id, session_id, live.start.turn_id, live.turn.created_at, lambda: nullcontext(live.tape)
    )


def _given_history(history: list[dict[str, Any]], question_id: str) -> Given:
    """A client's earlier messages, ready to be stored: an opening line, then whole turns with their slots.

    Users' messages keep their ids, which name turns; an answer keeps its own where no other message has it.
    """
    opening: list[dict[str, Any]] = []
    turns: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
    uids = {question_id, *(given.get("id") for given in history if given["role"] == "user")}
    for given in history:
        id = given.get("id")
        if given["role"] == "user":
            turn_id = id or new_id()
            entry = given | {"id": turn_id, "uid": turn_id, "created_at": time.time()}
            turns.append(([entry], given_slot(turn_id)))
        elif given["role"] == "assistant":
            message = given | {"uid": id if id and id not in uids else new_id()}
            uids.add(message["uid"])
            if turns:
                turns[-1][0].append(given_answer(message, turns[-1][1]["message_id"]))
            else:
                opening.append(given_answer(message, None))
    return Given(opening, turns)
