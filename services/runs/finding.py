"""Finding runs: a tenant's own, a session's, those that answer a question already."""

from collections.abc import Iterable
from typing import Any

from db.database import connection, fetch
from db.document import API4_CONVERSATIONS, CONVERSATIONS, DocumentMissing, PagedDocument
from db.jsontext import loads
from db.models import Run
from services.errors import Busy, NotFound
from services.principal import Principal, owned_by


class RunFinder:
    """Reads run rows. Every method opens its own short connection; `refuse_if_active` uses its caller's."""

    @classmethod
    def get(cls, principal: Principal, run_id: str, session_id: str | None = None) -> Run:
        """One run of the caller's. Raises NotFound, alike for an unknown and a foreign one."""
        query = Run.select().where(owned_by(principal, Run), Run.id == run_id)
        if session_id is not None:
            query = query.where(Run.conversation_id == session_id)
        with connection():
            run: Run | None = query.first()
        if run is None:
            raise NotFound("Run not found!")
        return run

    @classmethod
    def find_known(
        cls, principal: Principal, session_id: str, turn_id: str | None, idempotency_key: str | None
    ) -> Run | None:
        """The run of this turn, or of this client's key; None where there is none."""
        if turn_id is None and idempotency_key is None:
            return None
        same = (Run.turn_id == turn_id) if turn_id is not None else (Run.idempotency_key == idempotency_key)
        if turn_id is not None and idempotency_key is not None:
            same |= Run.idempotency_key == idempotency_key
        with connection():
            found: Run | None = Run.select().where(
                owned_by(principal, Run), Run.conversation_id == session_id, same
            ).first()
        return found

    @classmethod
    def list(cls, principal: Principal, session_id: str, statuses: Iterable[str] = ()) -> list[Run]:
        """A session's runs, newest first, at most 100."""
        query = Run.select().where(owned_by(principal, Run), Run.conversation_id == session_id)
        wanted = [*statuses]
        if wanted:
            query = query.where(Run.status.in_(wanted))
        with connection():
            return [*query.order_by(Run.started_at.desc(), Run.id.desc()).limit(100)]

    @classmethod
    def chat_of(cls, run: Run) -> str | None:
        """The chat whose session a run belongs to; None for a run that stores nothing, or whose session is gone."""
        whose = """SELECT dialog_id FROM {conversation} WHERE id = %s
            UNION ALL SELECT dialog_id FROM {api_4_conversation} WHERE id = %s"""
        with connection():
            rows = fetch(whose, [run.conversation_id] * 2)
        return rows[0][0] if rows else None

    @classmethod
    def still_wanted(cls, owner: str) -> dict[str, bool]:
        """This owner's active runs, each with whether somebody asked to cancel it."""
        with connection():
            rows = fetch(
                "SELECT id, cancel_requested FROM {run} WHERE owner = %s AND status = 'active'", [owner]
            )
        return {run_id: bool(cancelled) for run_id, cancelled in rows}

    @classmethod
    def outcome_of(cls, run_id: str) -> str | None:
        """How a run has ended; None while it hasn't, or where it is gone."""
        with connection():
            rows = fetch("SELECT outcome FROM {run} WHERE id = %s", [run_id])
        return rows[0][0] if rows else None

    @classmethod
    def refuse_if_active(cls, session_id: str, turn_id: str | None = None) -> None:
        """Raise Busy while the session's run is active (and, where given, answers that turn)."""
        rows = fetch("SELECT turn_id FROM {run} WHERE conversation_id = %s AND status = 'active'", [session_id])
        if rows and turn_id in (None, rows[0][0]):
            raise Busy("this turn is being answered; stop it first or try again later", retry_after=1)


def document_of(tenant_id: str, conversation_id: str) -> PagedDocument:
    """The table that holds this conversation: ids are unique over both. On the caller's connection.

    Raises DocumentMissing.
    """
    for document in (CONVERSATIONS, API4_CONVERSATIONS):
        if fetch(
            f"SELECT 1 FROM {{{document.table}}} WHERE id = %s AND tenant_id = %s", [conversation_id, tenant_id]
        ):
            return document
    raise DocumentMissing(conversation_id)


def stored_input(run: Run) -> dict[str, Any]:
    """A queued run's question."""
    question: dict[str, Any] = loads(run.input) if isinstance(run.input, str) else run.input or {}
    return question
