"""The run: options, candidates, measurements in order, tables, checks."""

import argparse
import importlib
import json
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.peers import report
from tests.bench.peers.measure import Candidate, Row, at_length, lists
from tests.bench.peers.server import Server
from tests.bench.peers.writers import measure_writers

LENGTHS = (10, 100, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an adapter is, and in which database its store lives."""

    module: str
    name: str
    database: str


PEERS = {
    "rows": Place("rows", "Rows", "chatkeep"),
    "document": Place("ours", "Document", "chatkeep"),
    "run": Place("ours", "Run", "chatkeep"),
    "adk": Place("google_adk", "Adk", "adk"),
    "adk-runner": Place("google_adk", "AdkRunner", "adk_runner"),
    "openai-agents": Place("openai_agents", "OpenaiAgents", "openai_agents"),
    "langchain": Place("langchain_history", "Langchain", "langchain"),
    "langgraph": Place("langgraph_saver", "Langgraph", "langgraph"),
    "agno": Place("agno_db", "Agno", "agno"),
    "agno-agent": Place("agno_db", "AgnoAgent", "agno_agent"),
    "chainlit": Place("chainlit_layer", "Chainlit", "chainlit"),
}


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return sorted(int(part) for part in text.split(","))

    def names(text: str) -> list[str]:
        return ["rows", *(name for name in text.split(",") if PEERS[name] and name != "rows")]

    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--lengths", type=numbers, default=[*LENGTHS], help="turns, separated by commas")
    parser.add_argument("--peers", type=names, default=[*PEERS], help=f"of {', '.join(PEERS)}; rows are always there")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--synchronous-commit", choices=("on", "off"), default="on")
    return parser.parse_args(arguments)


def candidates_of(server: Server, names: Sequence[str]) -> list[Candidate]:
    urls: dict[str, str] = {}
    found = []
    for name in names:
        place = PEERS[name]
        if place.database not in urls:
            urls[place.database] = server.create(place.database)
        adapter = getattr(importlib.import_module(f"tests.bench.peers.{place.module}"), place.name)
        peer = adapter(urls[place.database])
        found.append(Candidate(name, peer, place.database, peer.session("long")))
        print(f"{name:14}{peer.about}")
    return found


def run(server: Server, chosen: argparse.Namespace) -> dict[str, Any]:
    head = report.head(server)
    print(head)
    candidates = candidates_of(server, chosen.peers)
    begun = time.monotonic()

    def tell(text: str) -> None:
        print(f"  {time.monotonic() - begun:6.0f} s  {text}", flush=True)

    for length in chosen.lengths:
        at_length(server, candidates, length, tell)
        report.print_length(candidates, length)
    report.print_growth(candidates, chosen.lengths)
    listed = lists(server, candidates)
    report.table("a list of 30 sessions", report.LIST_COLUMNS, listed)
    crowds = crowds_of(candidates)
    report.table("one writer alone; 16 apart, on 16 sessions; 16 together, on one", report.WRITER_COLUMNS, crowds)
    checked = report.checks(candidates, crowds)
    for held, text in checked:
        print(f"  {'held' if held else 'MISSED'}: {text}")
    return {
        "head": head, "lengths": {each.name: each.rows for each in candidates}, "lists": listed, "writers": crowds,
        "stopped": {each.name: each.stopped for each in candidates if each.stopped},
        "checks": {text: held for held, text in checked},
    }


def crowds_of(candidates: Sequence[Candidate]) -> dict[str, Row]:
    """One store after the other: 16 writers keep both cores busy, and the connections are given back."""
    found = {}
    for each in candidates:
        found[each.name] = measure_writers(each.peer)
        each.peer.close()
    return found


def main() -> None:
    chosen = options()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "pg", chosen.synchronous_commit)
        try:
            results = run(server, chosen)
        finally:
            server.close()
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
