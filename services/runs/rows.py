"""Run rows: one active run a session, on any replica, by a unique index; a lease that a dead owner loses.

Question and run are one transaction, so a refused request leaves no question. Ending is one
transaction that appends the answer first and then asks whether the run is still its owner's: if not,
it rolls back, because somebody else ended it.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from peewee import IntegrityError

from db.database import change, connection, fetch, transaction
from db.document import API4_CONVERSATIONS, PagedDocument
from db.jsontext import dumps
from db.models import Run
from services.errors import Busy
from services.events import End, Event
from services.messages import text_of
from services.principal import Principal
from services.runs import journal
from services.runs.finding import RunFinder, document_of
from services.runs.values import Outcome, Right, RunStatus, Start
from services.structure_answer import Turn, answer_entry, answer_slot
from services.titles import derive_title


class TurnExists(Exception):
    """The session has this turn, or this client's key, already: the caller attaches to it."""


class Occupied(Exception):
    """Another run of the session is active, or waits before this one."""


_INSERT = """INSERT INTO {run} (id, tenant_id, conversation_id, kind, turn_id, client_run_id,
    idempotency_key, status, owner, lease_until, cancel_requested, arrival, input, last_n, started_at)"""
_OPEN_BEFORE = """SELECT 1 FROM {run} WHERE conversation_id = %s AND (status = 'active'
    OR (status = 'queued' AND lease_until > {now} AND arrival < %s))"""
_LAST_ARRIVAL = 2**62


class RunService(RunFinder):
    """Begin, queue, renew, cancel and end runs. Every method opens its own short connection."""

    @classmethod
    def begin(cls, start: Start, owner: str, lease: float) -> int | None:
        """Append the question and insert its run as active, or neither; the question's seq, where it is known.
        Safe to try again after a lost connection.

        Raises Occupied, TurnExists, DocumentMissing.
        """
        try:
            with connection(), transaction():
                seq = None if start.conversation_id is None else _append_question(start)
                inserted = change(
                    _INSERT + " SELECT %s, %s, %s, %s, %s, %s, %s, 'active', %s, {now} + %s, %s, 0, NULL, 0, {now}"
                    f" WHERE NOT EXISTS ({_OPEN_BEFORE})",
                    [*_identity(start), owner, lease, False, start.conversation_id, _LAST_ARRIVAL],
                )
                if not inserted:
                    raise Occupied
                return seq
        except IntegrityError as error:
            cls._judge(start, error)
            return None

    @classmethod
    def enqueue(cls, start: Start, owner: str, lease: float, length: int) -> None:
        """Insert the run as queued, behind all that wait; the question stays in `input` until its turn.

        Raises Busy where `length` questions wait already, TurnExists, DocumentMissing.
        """
        waiting = "SELECT {what} FROM {run} WHERE conversation_id = %s AND status = 'queued'"
        try:
            with connection(), transaction():
                start.document.lock(start.tenant_id, str(start.conversation_id))
                [(count, last)] = fetch(
                    waiting.replace("{what}", "count(*), coalesce(max(arrival), 0)"), [start.conversation_id]
                )
                if count >= length:
                    raise Busy(f"{count} questions wait in this session already; try again later", retry_after=1)
                change(
                    _INSERT + " VALUES (%s, %s, %s, %s, %s, %s, %s, 'queued', %s, {now} + %s, %s, %s, %s, 0, NULL)",
                    [*_identity(start), owner, lease, False, last + 1, dumps(start.question)],
                )
        except IntegrityError as error:
            cls._judge(start, error)

    @classmethod
    def promote(cls, start: Start) -> None:
        """Append a queued run's question and make the run active, if it is its turn.

        Raises Occupied, Busy where the queued run is gone, DocumentMissing.
        """
        with connection():
            rows = fetch("SELECT arrival, status FROM {run} WHERE id = %s", [start.id])
            if not rows:
                document_of(start.tenant_id, str(start.conversation_id))  # deleted with its session?
                raise Busy("the waiting question was withdrawn", retry_after=1)
            [(arrival, status)] = rows
            if status == RunStatus.ACTIVE:  # by a try whose connection was lost
                return
            before = [start.conversation_id, arrival]
            if fetch(_OPEN_BEFORE, before):
                raise Occupied
            try:
                with transaction():
                    _append_question(start)
                    promoted = change(
                        "UPDATE {run} SET status = 'active', input = NULL, started_at = {now}"
                        f" WHERE id = %s AND status = 'queued' AND NOT EXISTS ({_OPEN_BEFORE})",
                        [start.id, *before],
                    )
                    if not promoted:
                        raise Occupied
            except IntegrityError as error:
                cls._judge(start, error)

    @classmethod
    def withdraw(cls, run_id: str) -> None:
        """Delete a queued run: nothing of it was stored."""
        with connection():
            change("DELETE FROM {run} WHERE id = %s AND status = 'queued'", [run_id])

    @classmethod
    def end(
        cls, start: Start, turn: Turn, end: End, outcome: Outcome, right: Right,
        said: tuple[int, Sequence[Event]] | None = None,
    ) -> bool:
        """Store the answer, its slot and the run's end, once. False where the run isn't the caller's any more.

        `said` is what the journal lacks, and the number of its last event. Safe to try again after a lost
        connection. Raises DocumentMissing.
        """
        with connection():
            try:
                with transaction():
                    cls.end_here(start, turn, end, outcome, right, said)
            except Occupied:
                return False
        return True

    @classmethod
    def end_here(
        cls, start: Start, turn: Turn, end: End, outcome: Outcome, right: Right,
        said: tuple[int, Sequence[Event]] | None,
    ) -> None:
        """The same in the caller's transaction. Raises Occupied, which must roll it back."""
        if start.conversation_id is not None:
            start.document.append(
                start.tenant_id, start.conversation_id,
                [answer_entry(turn, start.turn_id, start.id, end)], [answer_slot(turn, start.turn_id)],
                **_statistics(start.document, turn, end),
            )
        if not cls._close(start.id, end, outcome, right, said[0] if said else 0):
            raise Occupied
        if said:
            journal.add(start.id, *said)

    @classmethod
    def _close(cls, run_id: str, end: End, outcome: Outcome, right: Right, last_n: int) -> bool:
        status = {
            Outcome.SUCCESS: RunStatus.COMPLETE, Outcome.LENGTH: RunStatus.COMPLETE,
            Outcome.ERROR: RunStatus.ERRORED,
        }.get(outcome, RunStatus.INTERRUPTED)
        closed = change(
            "UPDATE {run} SET status = %s, outcome = %s, finish_reason = %s, error_code = %s, error_message = %s,"
            " usage = %s, ended_at = {now}, lease_until = NULL, last_n = %s WHERE id = %s AND status = 'active' AND "
            + right.condition,
            [
                status, outcome, end.finish_reason, end.error_code, end.detail or end.error_message,
                dumps(asdict(end.usage)) if end.usage else None, last_n, run_id, *right.values,
            ],
        )
        return closed > 0

    @classmethod
    def renew(cls, owner: str, ids: Sequence[str], lease: float) -> None:
        """Prolong the lease of these runs of the owner's, but for rows that somebody holds just now."""
        with connection():
            change(
                """UPDATE {run} SET lease_until = {now} + %s WHERE id IN (
                SELECT id FROM {run} WHERE id IN (SELECT value FROM {items}) AND owner = %s
                AND status IN ('active', 'queued'){skip_locked})""",
                [lease, dumps(list(ids)), owner],
            )

    @classmethod
    def cancel(cls, principal: Principal, run: Run) -> None:
        """Ask the run's owner to stop; a queued run is withdrawn. Raises Busy where the run has ended."""
        with connection():
            if change("DELETE FROM {run} WHERE id = %s AND status = 'queued'", [run.id]):
                return
            asked = change(
                "UPDATE {run} SET cancel_requested = %s WHERE id = %s AND status = 'active'", [True, run.id]
            )
        if not asked:
            raise Busy(f"run {run.id} has ended already", status=run.status)

    @classmethod
    def _judge(cls, start: Start, violation: IntegrityError) -> None:
        """What a unique violation meant: this very run, committed before its connection was lost; its turn,
        or another run of the session: those are raised."""
        same = """SELECT 1 FROM {run} WHERE conversation_id = %s AND
            (turn_id = %s OR client_run_id = %s OR idempotency_key = %s)"""
        with connection():
            if fetch("SELECT 1 FROM {run} WHERE id = %s AND status IN ('active', 'queued')", [start.id]):
                return
            known = fetch(same, [start.conversation_id, start.turn_id, start.client_run_id, start.idempotency_key])
        message_known = "message_index" in str(violation)  # both engines name the constraint
        raise (TurnExists() if known or message_known else Occupied()) from violation


def _append_question(start: Start) -> int:
    """The question's seq."""
    session_id = str(start.conversation_id)
    if start.given.turns or start.given.opening:
        _append_given(start, session_id)
    return start.document.append(
        start.tenant_id, session_id, [start.question | {"uid": start.turn_id}], title=_title(start.question)
    ).first_seq


def _append_given(start: Start, session_id: str) -> None:
    next_seq = start.document.ensure_adopted(start.tenant_id, session_id)
    if fetch("SELECT 1 FROM {message_index} WHERE conversation_id = %s AND role = 'user' LIMIT 1", [session_id]):
        return
    if next_seq == 1 and start.given.opening:
        start.document.append(start.tenant_id, session_id, start.given.opening)
    for entries, slot in start.given.turns:
        start.document.append(start.tenant_id, session_id, entries, [slot], title=_title(entries[0]))


def _title(question: dict[str, Any]) -> str | None:
    return derive_title(text_of(question["content"]))


def _identity(start: Start) -> list[Any]:
    return [start.id, start.tenant_id, start.conversation_id, start.kind, start.turn_id,
            start.client_run_id, start.idempotency_key]


def statistics(*, answered: bool, tokens: int = 0, duration: float = 0.0, error_code: str | None = None) -> Any:
    """What a turn adds to an api_4_conversation row, as `append`'s arguments."""
    put = {"errors": error_code} if error_code else {}
    return {"add": {"round": int(answered), "tokens": tokens, "duration": duration}, "put": put}


def _statistics(document: PagedDocument, turn: Turn, end: End) -> Any:
    if document is not API4_CONVERSATIONS:
        return {}
    return statistics(
        answered=True, tokens=end.usage.total_tokens if end.usage else 0,
        duration=max(time.time() - turn.created_at, 0.0), error_code=end.error_code,
    )
