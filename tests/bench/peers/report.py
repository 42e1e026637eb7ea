"""Tables of what was measured, and the list of what has to hold."""

import os
import platform
from collections.abc import Mapping, Sequence

from tests.bench.peers.measure import Candidate, Row
from tests.bench.peers.server import QUIET, Server

OURS = ("document", "run")
APPEND_COLUMNS = ("append ms", "append p95", "append x", "mean ms", "mean x", "WAL KB", "WAL x", "disk KB")
READ_COLUMNS = ("read ms", "read p95", "read x", "parsed ms", "parsed x", "last ms", "last p95", "last x")
LIST_COLUMNS = ("list ms", "list p95", "list x")
WRITER_COLUMNS = (
    "alone ms", "apart ms", "apart x", "apart refused", "apart lost", "together ms", "together x",
    "together refused", "together lost",
)
LIMITS = {"document": 2.0, "run": 3.0}
DRIFT = 1.3
CROWDED = 3.0
Check = tuple[bool, str]


def head(server: Server) -> str:
    version, commit = server.ask("SHOW server_version"), server.ask("SHOW synchronous_commit")
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}, "
        f"PostgreSQL {version}, synchronous_commit {commit}, {', '.join(QUIET)}"
    )


def table(title: str, columns: Sequence[str], rows: Mapping[str, Row]) -> None:
    print(f"\n{title}")
    print("  ".join([f"{'':14}", *(f"{name:>11}" for name in columns)]))
    for name, row in rows.items():
        print("  ".join([f"{name:14}", *(_cell(row.get(column)) for column in columns)]))


def _cell(value: float | None) -> str:
    if value is None:
        return f"{'-':>11}"
    return f"{value:11,}" if isinstance(value, int) else f"{value:11,.2f}"


def print_length(candidates: Sequence[Candidate], length: int) -> None:
    rows = {each.name: each.rows[length] for each in candidates if "append x" in each.rows.get(length, {})}
    table(f"appending at {length:,} turns, a turn (x: times the rows)", APPEND_COLUMNS, rows)
    table(f"reading {length:,} turns: all of them, as values, the last ten", READ_COLUMNS, rows)


def print_growth(candidates: Sequence[Candidate], lengths: Sequence[int]) -> None:
    """One figure at all lengths, for the two that matter most."""
    for title, figure in (("an append, ms, by turns", "append ms"), ("a whole read as values, ms", "parsed ms")):
        rows = {
            each.name: {f"{length:,}": row[figure] for length, row in each.rows.items() if figure in row}
            for each in candidates
        }
        table(title, [f"{length:,}" for length in lengths], rows)
    for each in candidates:
        if each.stopped:
            print(f"stopped: {each.name}, {each.stopped}")


def checks(candidates: Sequence[Candidate], writers: Mapping[str, Row]) -> list[Check]:
    by_name = {each.name: each.rows for each in candidates}
    found: list[Check] = []
    for name in (each for each in OURS if each in by_name):
        rows = {length: row for length, row in by_name[name].items() if "append x" in row}
        found += _steady(name, rows)
        found += [_near(name, rows), *_ahead(name, rows, candidates)]
        found += _whole(name, rows, candidates)
        if name in writers:
            found += _crowd(name, writers[name])
    return found


def _steady(name: str, rows: Mapping[int, Row]) -> list[Check]:
    last, first = max(rows), 100 if 100 in rows else min(rows)
    if last == first:
        return []
    drift = rows[last]["append x"] / rows[first]["append x"]
    return [(drift <= DRIFT, f"{name}: ratio at {last:,} at most {DRIFT} times that at {first:,} (is {drift:.2f})")]


def _near(name: str, rows: Mapping[int, Row]) -> Check:
    worst, mean = (max(row[figure] for row in rows.values()) for figure in ("append x", "mean x"))
    limit = LIMITS[name]
    return worst <= limit, f"{name}: append at most {limit:.0f} times the rows (is {worst:.2f}, by means {mean:.2f})"


def _ahead(name: str, rows: Mapping[int, Row], candidates: Sequence[Candidate]) -> list[Check]:
    long = {length: row for length, row in rows.items() if length >= 1_000}
    rereading = [each for each in candidates if each.peer.rereads]
    behind = [
        f"{each.name} at {length:,}" for each in rereading for length, row in long.items()
        if each.rows.get(length, {}).get("append ms", float("inf")) <= row["append ms"]
    ]
    told = f"{name}: from 1,000 turns on ahead of whoever rereads the history{_but(behind)}"
    return [(not behind, told)] if long and rereading else []


def _whole(name: str, rows: Mapping[int, Row], candidates: Sequence[Candidate]) -> list[Check]:
    """As text beside the rows, who have it as text too; as values beside everyone."""
    slower = [f"at {length:,}" for length, row in rows.items() if row["read x"] >= 1]
    behind = [
        f"{each.name} at {length:,}" for each in candidates if each.name not in OURS
        for length, row in rows.items()
        if each.rows.get(length, {}).get("parsed ms", float("inf")) <= row["parsed ms"]
    ]
    return [
        (not slower, f"{name}: whole read, as text, ahead of the rows{_but(slower)}"),
        (not behind, f"{name}: whole read, as values, ahead of every peer and the rows{_but(behind)}"),
    ]


def _crowd(name: str, row: Row) -> list[Check]:
    gone = row["together lost"] + row["together refused"] + row["apart lost"] + row["apart refused"]
    times = row["together x"]
    return [
        (gone == 0, f"{name}: many writers lose nothing (is {gone})"),
        (times <= CROWDED, f"{name}: 16 on one session at most {CROWDED:.0f} times one writer (is {times:.2f})"),
    ]


def _but(names: Sequence[str]) -> str:
    return f" (not of {', '.join(names)})" if names else ""
