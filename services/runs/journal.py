"""The journal: what a run said so far, on disk before anyone reads it.

A row holds the events of one flush; `n` is the number of its last one, so rows that overlap (a flush
that was tried again) show every event once. A flush holds its owner's fence shared, a recoverer seizes
it: what is committed after a recoverer has read the journal can't be this owner's any more.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from db.database import change, dialect, fetch, transaction
from db.jsontext import dumps, loads
from db.postgres import POSTGRES
from services import events
from services.events import End, Event, FinishReason, Usage
from services.runs.tape import Numbered

CHANNEL = "chatkeep_journal"
_FENCE = "hashtextextended(%s, 0)"  # of the owner: a transaction's advisory lock, which any pooler lets through

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (
        events.TextDelta, events.ReasoningDelta, events.ReasoningStart, events.ReasoningEnd, events.Sources,
        events.Citations, events.ToolCallStart, events.ToolCallArguments, events.ToolCallEnd, events.ToolResult,
        events.State, events.Custom,
    )
}
_ORPHANED = "NOT EXISTS (SELECT 1 FROM {run} WHERE id = run_id)"
_ROWS = {
    "sqlite": """SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS n,
        json_extract(value, '$[2]') AS payload FROM json_each(%s)""",
    "postgres": """SELECT v->>0 AS run_id, (v->>1)::bigint AS n, v->>2 AS payload
        FROM json_array_elements(%s::json) v""",
}
_WRITE = """INSERT INTO {run_event} (run_id, n, payload) SELECT v.run_id, v.n, v.payload FROM (%s) v
    JOIN {run} r ON r.id = v.run_id WHERE r.owner = %%s AND r.status = 'active'
    ON CONFLICT (run_id, n) DO UPDATE SET payload = excluded.payload RETURNING run_id"""
_READ = """SELECT e.run_id, e.n, e.payload FROM (%s) v JOIN {run_event} e ON e.run_id = v.run_id AND e.n > v.n
    ORDER BY e.run_id, e.n"""


def encode(said: Sequence[Event]) -> str:
    """Events as JSON text: `[[kind, value, ...], ...]`. An end's detail is for the log, not for readers."""
    return dumps([_values(event) for event in said])


def decode(payload: str) -> list[Event]:
    return [_event(*values) for values in loads(payload)]


def write(owner: str, rows: Sequence[tuple[str, int, str]]) -> set[str]:
    """Commit rows (run id, number of the last event, payload); the runs that still were this owner's."""
    with transaction():
        if dialect() is POSTGRES:
            fetch(f"SELECT pg_advisory_xact_lock_shared({_FENCE}), pg_notify('{CHANNEL}', '')", [owner])
        kept = fetch(_WRITE % _ROWS[dialect().name], [dumps(rows), owner])
    return {row[0] for row in kept}


def add(run_id: str, n: int, said: Sequence[Event]) -> None:
    """Write one run's events in its caller's transaction, which says whether they count."""
    change(
        "INSERT INTO {run_event} (run_id, n, payload) VALUES (%s, %s, %s)"
        " ON CONFLICT (run_id, n) DO UPDATE SET payload = excluded.payload", [run_id, n, encode(said)],
    )
    if dialect() is POSTGRES:
        fetch(f"SELECT pg_notify('{CHANNEL}', '')")


def seize(owner: str) -> bool:
    """Keep this owner from writing until the transaction's end. False while a write of it is under way."""
    if dialect() is not POSTGRES:
        return True  # the transaction has SQLite's only write lock
    [(seized,)] = fetch(f"SELECT pg_try_advisory_xact_lock({_FENCE})", [owner])
    return bool(seized)


def read(run_id: str, after: int = 0) -> list[Numbered]:
    """A run's journaled events behind number `after`, in order, each once."""
    return read_many({run_id: after}).get(run_id, [])


def read_many(positions: Mapping[str, int]) -> dict[str, list[Numbered]]:
    """The same for several runs, in one statement."""
    rows = fetch(_READ % _ROWS[dialect().name], [dumps([(run_id, n, "") for run_id, n in positions.items()])])
    found: dict[str, list[Numbered]] = {}
    for run_id, n, payload in rows:
        events = found.setdefault(run_id, [])
        last = events[-1].n if events else positions[run_id]
        events.extend(_behind(last, n, decode(payload)))
    return found


def forget(grace: float) -> None:
    """Drop the journal of runs that ended over `grace` seconds ago, and such runs that stored nothing."""
    due = "ended_at < {now} - %s AND last_n > 0"
    for (run_id, conversation_id) in fetch(f"SELECT id, conversation_id FROM {{run}} WHERE {due} LIMIT 1000", [grace]):
        with transaction():
            change("DELETE FROM {run_event} WHERE run_id = %s", [run_id])
            if conversation_id is None:
                change("DELETE FROM {run} WHERE id = %s", [run_id])
            else:
                change("UPDATE {run} SET last_n = 0 WHERE id = %s", [run_id])


def erase(owner: str, run_id: str) -> None:
    """Drop what a run of this owner's said after its session was deleted: its last write may have met the deletion."""
    with transaction():
        if dialect() is POSTGRES:
            fetch(f"SELECT pg_advisory_xact_lock({_FENCE})", [owner])
        change(f"DELETE FROM {{run_event}} WHERE run_id = %s AND {_ORPHANED}", [run_id])


def erase_orphans() -> None:
    """The same for owners that died just then."""
    change(f"DELETE FROM {{run_event}} WHERE {_ORPHANED}")


def _behind(last: int, n: int, said: list[Event]) -> Iterable[Numbered]:
    first = n - len(said) + 1
    return [Numbered(first + at, event) for at, event in enumerate(said) if first + at > last]


def _values(event: Event) -> list[Any]:
    if isinstance(event, End):
        usage = [event.usage.prompt_tokens, event.usage.completion_tokens] if event.usage else None
        return ["End", event.finish_reason, usage, event.error_code, event.error_message]
    return [type(event).__name__, *(getattr(event, name) for name in event.__slots__)]


def _event(kind: str, *values: Any) -> Event:
    if kind == "End":
        reason, usage, code, message = values
        return End(FinishReason(reason), Usage(*usage) if usage else None, code, message)
    event: Event = _KINDS[kind](*values)
    return event
