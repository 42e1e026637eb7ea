"""A real server process on a free port of 127.0.0.1, and a model server whose pace the test sets."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).parent.parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(condition: Any, seconds: float = 15) -> Any:
    """The condition's first true value; an AssertionError where it stays false."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


class ServerProcess:
    """`chatkeep serve` as an operator starts it. Killed at the test's end, by its id."""

    def __init__(self, folder: Path, command: list[str] | None = None, **environment: str) -> None:
        self.folder = folder
        self.command = command or [sys.executable, "-m", "api.cli"]
        self.port = free_port()
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT) if command is None else "", "CHATKEEP_PORT": str(self.port),
        } | environment
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, *arguments: str, check: bool = True) -> str:
        """One command of the CLI, in the server's folder and environment; what it printed."""
        done = subprocess.run(
            [*self.command, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=check, timeout=60,
        )
        return done.stdout

    def token(self, tenant: str = "default") -> str:
        return str(json.loads(self.run("token", "create", "--tenant", tenant, "--json"))["token"])

    def start(self, ready: str = "", *options: str) -> "ServerProcess":
        """Until it answers on /readyz, or on the address that a base path moves it to."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "serve", *options], cwd=self.folder, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            )
        wait_until(partial(self._answers, ready or f"{self.base}/readyz"), 30)
        return self

    def _answers(self, ready: str) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return requests.get(ready, timeout=2).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def kill(self) -> None:
        """kill -9 of the server and its worker, as the machine's end would be."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


class ModelServer:
    """An OpenAI-compatible server that says its words one by one, each when the test allows it."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.said = threading.Semaphore(0)
        model = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # the server under test was killed
                    for event in model.events():
                        self.wfile.write(b"data: %s\n\n" % event)
                        self.wfile.flush()

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def events(self) -> Iterator[bytes]:
        for word in self.words:
            self.said.acquire(timeout=30)
            yield json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}).encode()
        yield json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode()
        yield b"[DONE]"

    def allow(self, words: int) -> None:
        self.said.release(words)

    def close(self) -> None:
        self.allow(10_000)
        self.server.shutdown()
        self.server.server_close()
