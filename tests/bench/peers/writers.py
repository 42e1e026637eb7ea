"""What is measured of many writers: the wall clock a stored turn, and which turns aren't there afterwards."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.peers.peer import WRITERS, Peer, Turn, new_turn

TURNS = 6  # a writer, in each of the rounds
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Crowd:
    """What became of the turns of one round."""

    ms: float  # wall clock a stored turn
    refused: int  # not stored, and the writer was told
    lost: int  # not stored, and nobody was told


def turns(count: int) -> list[Turn]:
    return [new_turn() for _ in range(count)]


def crowd(peer: Peer, sessions: Sequence[Any], jobs: Sequence[tuple[Any, list[Turn]]]) -> Crowd:
    begun = time.perf_counter()
    refused = peer.write(jobs)
    wall = (time.perf_counter() - begun) * 1000
    there = set().union(*(peer.texts(session) for session in sessions))
    asked = [each for _, given in jobs for each in given]
    missing = {each.id for each in asked if not {each.question, each.answer} <= there}
    return Crowd(wall / max(len(asked) - len(missing), 1), len(missing & refused), len(missing - refused))


def alone(peer: Peer) -> Crowd:
    session = peer.session("writers")
    return crowd(peer, [session], [(session, turns(TURNS * 4))])


def apart(peer: Peer) -> Crowd:
    sessions = [peer.session("writers") for _ in range(WRITERS)]
    return crowd(peer, sessions, [(session, turns(TURNS)) for session in sessions])


def together(peer: Peer) -> Crowd:
    session = peer.session("writers")
    return crowd(peer, [session], [(peer.join(session), turns(TURNS)) for _ in range(WRITERS)])


def measure_writers(peer: Peer) -> dict[str, float]:
    """One writer, 16 on 16 sessions, 16 on one; after a round of the second kind that opens the connections."""
    apart(peer)
    found = [{kind.__name__: kind(peer) for kind in (alone, apart, together)} for _ in range(ROUNDS)]
    row: dict[str, float] = {}
    for kind in found[0]:
        taken = [each[kind] for each in found]
        row |= {
            f"{kind} ms": statistics.median(each.ms for each in taken),
            f"{kind} refused": sum(each.refused for each in taken), f"{kind} lost": sum(each.lost for each in taken),
        }
    return row | {"apart x": row["apart ms"] / row["alone ms"], "together x": row["together ms"] / row["alone ms"]}
