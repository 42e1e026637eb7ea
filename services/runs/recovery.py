"""Ending what others lost: runs whose owner died, or whose lease ran out, with all that their journal has."""

import threading
import time

import structlog

from conf.settings import RunSettings
from db.database import TROUBLE, change, connection, fetch, transaction
from db.document import CONVERSATIONS, DocumentMissing, DocumentTooNew
from db.models import Run
from services.events import End, FinishReason
from services.principal import Principal, owned_by
from services.runs import journal
from services.runs.rows import Occupied, RunService, document_of
from services.runs.values import Outcome, Right, RunStatus, Start, is_dead_neighbour
from services.structure_answer import Turn, closing, structure_answer

log = structlog.get_logger()

INTERRUPTED = End(FinishReason.INTERRUPTED)


class Recovery:
    """A thread that looks every `renew` seconds, and drops journals that nobody can want any more."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="run-recovery", daemon=True)

    def start(self) -> None:
        """Recover at once what a former life of this host lost, then go on in the background."""
        recover(Principal.system())
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _look(self) -> None:
        while not self._stopped.wait(self.settings.renew):
            try:
                recover(Principal.system())
                with connection():
                    journal.forget(self.settings.grace)
            except TROUBLE:
                log.warning("the database does not answer; lost runs wait", exc_info=True)


def recover(principal: Principal) -> int:
    """End the runs that lost their owner, as interrupted; drop queued ones. The number ended."""
    with connection():
        expired = {row[0] for row in fetch(
            "SELECT id FROM {run} WHERE status IN ('active', 'queued') AND lease_until < {now}"
        )}
        runs = list(Run.select().where(owned_by(principal, Run), Run.status.in_(["active", "queued"])))
    dead = {owner for owner in {str(run.owner) for run in runs} if is_dead_neighbour(owner)}
    lost = [
        (run, Right.of_owner(run.owner) if run.owner in dead else Right("lease_until < {now}"))
        for run in runs if run.owner in dead or run.id in expired
    ]
    return sum(_recover(run, right) for run, right in lost)


def _recover(run: Run, right: Right) -> bool:
    try:
        with connection():
            if run.status == RunStatus.QUEUED:
                return _drop(run, right)
            with transaction():
                _end(run, right)
    except Occupied:  # its owner, or another recoverer, was first
        return False
    except DocumentMissing:
        with connection():
            return _drop(run, right)
    except DocumentTooNew:
        log.warning("a newer release must recover this run", run_id=run.id)
        return False
    except TROUBLE:  # somebody holds its session: the others needn't wait for that
        log.warning("run not recovered yet", run_id=run.id, exc_info=True)
        return False
    log.info("run recovered", run_id=run.id, session_id=run.conversation_id)
    return True


def _drop(run: Run, right: Right) -> bool:
    """A question that still waited, or a run whose session is gone: nothing of it is stored."""
    return change(f"DELETE FROM {{run}} WHERE id = %s AND status = %s AND {right.condition}",
                  [run.id, run.status, *right.values]) > 0


def _end(run: Run, right: Right) -> None:
    """In one transaction, behind its owner's fence: what the journal has then is all that anyone saw."""
    if not journal.seize(str(run.owner)):
        raise Occupied
    turn = Turn(created_at=run.started_at or time.time())
    said = [numbered.event for numbered in journal.read(run.id)]
    for event in said:
        structure_answer(turn, event, str(run.turn_id), run.conversation_id)
    ending = closing(turn)
    for event in ending:
        structure_answer(turn, event, str(run.turn_id), run.conversation_id)
    document = document_of(run.tenant_id, run.conversation_id) if run.conversation_id else CONVERSATIONS
    start = Start(run.tenant_id, run.conversation_id, {"id": run.turn_id}, document, id=run.id)
    lacking = (len(said) + len(ending) + 1, [*ending, INTERRUPTED])
    RunService.end_here(start, turn, INTERRUPTED, Outcome.LOST, right, lacking)
