"""Doctor: every invariant of the store, looked at on a live database. It changes nothing unless it is told to mend."""

from collections.abc import Callable, Iterator, Sequence

from services.doctor.datasets import examine_datasets
from services.doctor.finding import UNREADABLE, Finding
from services.doctor.leftovers import lost_runs, orphans
from services.doctor.mending import mend
from services.doctor.sessions import count_sessions, examine_sessions
from services.doctor.texts import as_far_as_readable, examine_texts
from services.pruning import Pruning


class Doctor:
    """Examines every tenant's rows. `retention_days` says when a deleted chat's sessions are due; `told` hears
    after each session how many were examined, and how many there are."""

    def __init__(self, retention_days: int, told: Callable[[int, int], None] = lambda examined, total: None) -> None:
        self.retention_days = retention_days
        self.examined = 0
        self._told = told

    def examine(self) -> Iterator[Finding]:
        """Everything that is wrong: what can't be read, then session by session, then what belongs to no session."""
        self.examined, total = 0, count_sessions()
        texts = list(examine_texts())
        yield from texts
        told = {finding.id for finding in texts}
        for findings in as_far_as_readable(examine_sessions()):
            self.examined += 1
            self._told(self.examined, total)
            yield from (found for found in findings if found.check != UNREADABLE or found.id not in told)
        for others in (orphans(), lost_runs(), examine_datasets()):
            yield from as_far_as_readable(others)

    def mend(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
        """Do the safe mends and look again: what was mended, and what is left."""
        if not findings:
            return [], []
        mend(findings)
        left = list(self.examine())
        still = {(finding.check, finding.id) for finding in left}
        return [finding for finding in findings if (finding.check, finding.id) not in still], left

    def due(self) -> int:
        """Sessions whose chat was deleted longer ago than the retention time."""
        return Pruning(self.retention_days).due().sessions
