"""`chatkeep serve` on a machine of its own name, perhaps with one of its rules broken.

Run: `python -m tests.faults.server MUTANT serve`; the environment's FAULTS_HOST is the machine's name.
A mutant shows that the faults find what the rule prevents.
"""

import os
import socket
import sys
from typing import Any

from api.cli import main
from services.runs import journal, recovery, rows
from services.runs.live import LiveRun
from services.runs.values import Right


def sound() -> None:
    """Nothing is broken."""


def question_after_model() -> None:
    """The question is stored with its answer, so a server that dies takes it along."""
    append, end_here = rows._append_question, rows.RunService.end_here

    def end_with_question(start: Any, *rest: Any) -> None:
        if start.question.get("content"):
            append(start)
        end_here(start, *rest)

    rows._append_question = lambda start: None
    rows.RunService.end_here = end_with_question  # type: ignore[method-assign, assignment]


def lease_ignored() -> None:
    """A run belongs to its owner for ever."""
    recovery.Right = lambda *parts: Right("FALSE")  # type: ignore[misc, assignment]
    recovery.is_dead_neighbour = lambda owner: False


def fence_off() -> None:
    """A late owner writes as if its run were still its own."""
    rows.RunService._close_sound = rows.RunService._close  # type: ignore[attr-defined]

    def close_anyway(run_id: str, *rest: Any) -> bool:
        rows.RunService._close_sound(run_id, *rest)  # type: ignore[attr-defined]
        return True

    rows.RunService._close = close_anyway  # type: ignore[method-assign, assignment]


def journal_off() -> None:
    """Readers see what no disk has."""
    journal.write = lambda owner, written: {row[0] for row in written}
    init = LiveRun.__init__
    LiveRun.__init__ = lambda self, *a, **k: init(self, *a, **(k | {"before_send": False}))  # type: ignore[misc]


MUTANTS = {mutant.__name__: mutant for mutant in (sound, question_after_model, lease_ignored, fence_off, journal_off)}

if __name__ == "__main__":
    host = os.environ["FAULTS_HOST"]
    socket.gethostname = lambda: host
    MUTANTS[sys.argv[1]]()
    sys.argv = ["chatkeep", *sys.argv[2:]]
    main()
