"""What is measured of one writer: appends, reads and lists, one candidate after the other in each round."""

import gc
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.document import timed
from tests.bench.peers.peer import LAST, LISTED, Peer, new_turn
from tests.bench.peers.server import Server

APPENDS = 30
READS = 31
FEWEST = 3  # samples that even a slow candidate gives
PATIENCE = 20_000  # milliseconds a candidate has for its samples
SLOW = 1_000  # milliseconds of one append after which a candidate isn't grown further
GROWTH = 180_000  # milliseconds that growing to the next length may take
LISTED_TURNS = 10
ORDER = random.Random(1)

Row = dict[str, float]


@dataclass
class Candidate:
    name: str
    peer: Peer
    database: str
    session: Any
    turns: int = 0
    stopped: str = ""
    rows: dict[int, Row] = field(default_factory=dict)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[max(round(len(values) * 0.95) - 1, 0)]


def rounds(candidates: Sequence[Candidate], count: int) -> Iterator[tuple[int, Sequence[Candidate]]]:
    """Each round in another order: whoever comes after a relative finds warm caches."""
    for number in range(count):
        yield number, ORDER.sample(candidates, len(candidates))


def samples(
    candidates: Sequence[Candidate], count: int, measure: Callable[[Candidate, int], tuple[float, ...]]
) -> dict[str, list[tuple[float, ...]]]:
    """`count` measurements of each, milliseconds first, after one that warms up; fewer where they take long."""
    taken: dict[str, list[tuple[float, ...]]] = {each.name: [] for each in candidates}
    for number, ordered in rounds(candidates, count + 1):
        for each in ordered:
            mine = taken[each.name]
            if len(mine) <= FEWEST or sum(sample[0] for sample in mine) < PATIENCE:
                mine.append(measure(each, number))
    return {name: mine[1:] for name, mine in taken.items()}


def grow(server: Server, candidate: Candidate, length: int) -> None:
    """Bring the session to `length` turns, or say why not."""
    peer, begun, spent = candidate.peer, candidate.turns, 0.0
    before = server.size(candidate.database)
    while candidate.turns < length:
        count = min(peer.batch or length, length - candidate.turns)
        turns = [new_turn() for _ in range(count)]
        took = timed(lambda turns=turns: peer.fill(candidate.session, turns))
        candidate.turns += count
        spent += took
        if peer.batch == 1 and took > SLOW and candidate.turns - begun > FEWEST:
            candidate.stopped = f"one append took {took / 1000:.1f} s at {candidate.turns:,} turns"
        elif spent > GROWTH and candidate.turns < length:
            candidate.stopped = f"growing it took over {GROWTH // 60_000} minutes, at {candidate.turns:,} turns"
        if candidate.stopped:
            return
    candidate.rows[length] = {"growth s": spent / 1000}
    if peer.batch:
        candidate.rows[length] |= _on_disk(server, candidate, before, candidate.turns - begun)


def _on_disk(server: Server, candidate: Candidate, before: int, turns: int) -> Row:
    return {"disk KB": (server.size(candidate.database) - before) / max(turns, 1) / 1024}


def measure_appends(server: Server, candidates: Sequence[Candidate], length: int) -> None:
    turns = [new_turn() for _ in range(APPENDS + 1)]

    def one(candidate: Candidate, number: int) -> tuple[float, float]:
        before = server.written()
        took = timed(lambda: candidate.peer.append(candidate.session, turns[number]))
        candidate.turns += 1
        return took, server.written() - before

    at_once = [(each, server.size(each.database), each.turns) for each in candidates if not each.peer.batch]
    taken = samples(candidates, APPENDS, one)
    for candidate, before, begun in at_once:
        candidate.rows[length] |= _on_disk(server, candidate, before, candidate.turns - begun)
    for candidate in candidates:
        times = [took for took, _ in taken[candidate.name]]
        candidate.rows[length] |= {
            "append ms": statistics.median(times), "append p95": p95(times), "mean ms": statistics.mean(times),
            "WAL KB": statistics.mean(written for _, written in taken[candidate.name]) / 1024,
        }
        if statistics.median(times) > SLOW:
            candidate.stopped = f"one append took {statistics.median(times) / 1000:.1f} s at {length:,} turns"


def measure_read(candidates: Sequence[Candidate], length: int, title: str, read: Callable[[Candidate], Any]) -> None:
    taken = samples(candidates, READS, lambda candidate, _: (timed(lambda: read(candidate)),))
    for candidate in candidates:
        times = [sample[0] for sample in taken[candidate.name]]
        candidate.rows[length] |= {f"{title} ms": statistics.median(times), f"{title} p95": p95(times)}


def measure_reads(candidates: Sequence[Candidate], length: int) -> None:
    measure_read(candidates, length, "read", lambda each: each.peer.read_all(each.session))
    measure_read(candidates, length, "last", lambda each: each.peer.read_last(each.session, LAST))
    twofold = [each for each in candidates if type(each.peer).read_parsed is not Peer.read_parsed]
    measure_read(twofold, length, "parsed", lambda each: each.peer.read_parsed(each.session))
    for each in candidates:
        if each not in twofold:
            row = each.rows[length]
            row |= {"parsed ms": row["read ms"], "parsed p95": row["read p95"]}


def compare(candidates: Iterable[Candidate], rival: Row, length: int) -> None:
    """Each figure as a multiple of the rows'."""
    for each in candidates:
        row = each.rows[length]
        for title in ("append ms", "mean ms", "WAL KB", "read ms", "parsed ms", "last ms"):
            row[title.split()[0] + " x"] = row[title] / rival[title]


def settle(server: Server, candidates: Sequence[Candidate]) -> None:
    """Clean up now, so that neither the server nor Python does it in the middle of a measurement."""
    server.vacuum(sorted({each.database for each in candidates}))
    gc.collect()
    gc.freeze()


def check_stored(candidate: Candidate) -> None:
    """Raise where the session doesn't hold what was measured."""
    found, stored = len(candidate.peer.texts(candidate.session)), 2 * candidate.turns
    if found != stored:
        raise RuntimeError(f"{candidate.name} has {found} of {stored} entries")


def at_length(server: Server, candidates: Sequence[Candidate], length: int, tell: Callable[[str], None]) -> None:
    """Grow every candidate that still goes to `length` turns, and measure there."""
    going = [each for each in candidates if not each.stopped]
    for each in going:
        grow(server, each, length)
        tell(f"{each.name} has {each.turns:,} turns")
    going = [each for each in going if not each.stopped]
    settle(server, going)
    measure_appends(server, going, length)
    measure_reads(going, length)
    for each in going:
        check_stored(each)
    compare(going, next(each for each in going if each.name == "rows").rows[length], length)


def lists(server: Server, candidates: Sequence[Candidate]) -> dict[str, Row]:
    """A list of 30 sessions of ten turns, beside the long session."""
    able = [each for each in candidates if each.peer.lists]
    for each in able:
        for _ in range(LISTED):
            session = each.peer.session("lists")
            each.peer.fill(session, [new_turn() for _ in range(LISTED_TURNS)])
    settle(server, able)
    taken = samples(able, READS, lambda candidate, _: (timed(lambda: candidate.peer.list_30("lists")),))
    found: dict[str, Row] = {}
    for name, mine in taken.items():
        times = [sample[0] for sample in mine]
        found[name] = {"list ms": statistics.median(times), "list p95": p95(times)}
    for row in found.values():
        row["list x"] = row["list ms"] / found["rows"]["list ms"]
    return found
