"""A broken rule, as doctor tells of it."""

from dataclasses import dataclass

FIX = "run `chatkeep doctor --fix`"
FROM_A_BACKUP = "take it from a backup, or delete it"
UNREADABLE = "unreadable"  # the check of what no other check can look at


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, what, and how to mend it."""

    check: str
    id: str
    problem: str
    mend: str
