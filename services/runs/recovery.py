"""Ending what others lost: runs whose owner died, or whose lease ran out, with all that their journal has."""

import threading
import time

import structlog

from conf.settings import RunSettings
from db.database import TROUBLE, change, connection, fetch, transaction
from db.document import CONVERSATIONS, DocumentMissing, DocumentTooNew
from db.models import Run
from services.events import End, FinishReason
from services.observer import Observer
from services.principal import Principal, owned_by
from services.runs import journal
from services.runs.finding import document_of
from services.runs.rows import Occupied, RunService
from services.runs.values import Outcome, Right, RunStatus, Start, is_dead_neighbour
from services.structure_answer import Turn, closing, structure_answer

log = structlog.get_logger()

_SWEEP = 10.0  # seconds between two looks for journals whose grace is over
INTERRUPTED = End(FinishReason.INTERRUPTED)


class Recovery:
    """A thread that looks every `poll` seconds, and now and then drops journals that nobody can want any more."""

    def __init__(self, settings: RunSettings, observer: Observer) -> None:
        self.settings = settings
        self._observer = observer
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="run-recovery", daemon=True)

    def start(self) -> None:
        """Recover at once what a former life of this host lost, then go on in the background."""
        with connection():
            journal.erase_orphans()
        self._recover()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive:
            self._thread.join(5)

    def _look(self) -> None:
        swept = time.monotonic()
        while not self._stopped.wait(self.settings.poll):
            try:
                self._recover()
                if time.monotonic() - swept > _SWEEP:
                    swept = time.monotonic()
                    with connection():
                        journal.forget(self.settings.grace)
            except TROUBLE:
                log.warning("the database does not answer; lost runs wait", exc_info=True)

    def _recover(self) -> None:
        for _ in range(recover(Principal.system())):
            self._observer.run_ended(Outcome.LOST)


def recover(principal: Principal) -> int:
    """End the runs that lost their owner, as interrupted; drop queued ones. The number ended."""
    with connection():
        open_runs = fetch("SELECT id, owner, lease_until < {now} FROM {run} WHERE status IN ('active', 'queued')")
    dead = {owner for owner in {str(owner) for _, owner, _ in open_runs} if is_dead_neighbour(owner)}
    rights = {id: Right.of_owner(owner) for id, owner, _ in open_runs if owner in dead}
    rights |= {id: Right("lease_until < {now}") for id, _, expired in open_runs if expired and id not in rights}
    return sum(_recover(principal, id, right) for id, right in rights.items())


def _recover(principal: Principal, id: str, right: Right) -> bool:
    try:
        with connection():
            run = Run.get_or_none(owned_by(principal, Run), Run.id == id)
            return run is not None and _end_or_drop(run, right)
    except Occupied:  # its owner, or another recoverer, was first
        return False
    except (*TROUBLE, DocumentTooNew):  # somebody holds its session, or knows it better: the others needn't wait
        log.warning("run not recovered yet", run_id=id, exc_info=True)
        return False


def _end_or_drop(run: Run, right: Right) -> bool:
    if run.status == RunStatus.QUEUED:
        return _drop(run, right)
    try:
        with transaction():
            _end(run, right)
    except DocumentMissing:
        return _drop(run, right)
    log.info("run ended", run_id=run.id, session_id=run.conversation_id, outcome=Outcome.LOST)
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
