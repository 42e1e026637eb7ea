"""Rows whose owner is gone: runs, index and journal of deleted sessions, and runs that nobody answers any more."""

from collections.abc import Iterator

from db.database import change, connection, fetch, transaction
from services.doctor.finding import FIX, Finding
from services.runs import journal

_OF_NO_SESSION = """conversation_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {conversation} c WHERE c.id = conversation_id)
    AND NOT EXISTS (SELECT 1 FROM {api_4_conversation} c WHERE c.id = conversation_id)"""
_TABLES = ("run", "message_index")


def orphans() -> Iterator[Finding]:
    with connection():
        for table in _TABLES:
            for (id,) in fetch(f"SELECT DISTINCT conversation_id FROM {{{table}}} WHERE {_OF_NO_SESSION}"):
                yield Finding("orphans", id, f"{table} rows of a session that is gone", FIX)
        for (id,) in fetch(
            "SELECT DISTINCT run_id FROM {run_event} e WHERE NOT EXISTS (SELECT 1 FROM {run} r WHERE r.id = e.run_id)"
        ):
            yield Finding("orphans", id, "journal of a run that is gone", FIX)


def erase_orphans() -> None:
    """Nothing leads to these rows any more."""
    with connection(), transaction():
        for table in _TABLES:
            change(f"DELETE FROM {{{table}}} WHERE {_OF_NO_SESSION}")
        journal.erase_orphans()


def lost_runs() -> Iterator[Finding]:
    with connection():
        for id, status in fetch(
            "SELECT id, status FROM {run} WHERE status IN ('active', 'queued') AND lease_until < {now} - 60"
        ):
            yield Finding("runs", id, f"{status}, but its owner is silent", f"{FIX}, or start a server")
        for (id,) in fetch(
            "SELECT id FROM {run} WHERE (status IN ('active', 'queued')) = (outcome IS NOT NULL)"
        ):
            yield Finding("runs", id, "its status and its outcome contradict each other", "report it")
