"""A broken rule, as doctor tells of it."""

from dataclasses import dataclass

FIX = "run `chatkeep doctor --fix`"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, what, and how to mend it."""

    check: str
    id: str
    problem: str
    mend: str
