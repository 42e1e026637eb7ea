"""A real HTTP server that speaks as a model server does, well or badly: each test writes its answers."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import stamina

from conf.settings import ModelSettings
from services.errors import ModelFailure
from services.events import Event
from services.rag.chat_models import ModelRequest, OpenAIChatModel

KEY = "sk-secret-0123456789"
Script = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what these tests are about."""


class Upstream:
    """A model server. It answers its requests by the scripts in turn, the last one again and again."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.peers: list[Any] = []
        self.left = threading.Event()
        self.released = threading.Event()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                upstream.requests.append(json.loads(body))
                upstream.paths.append(self.path)
                upstream.keys.append(self.headers["Authorization"])
                upstream.peers.append(self.client_address)
                script = upstream.scripts[min(len(upstream.requests), len(upstream.scripts)) - 1]
                try:
                    script(self)
                except OSError:
                    self.close_connection = True
                    upstream.left.set()

            def log_message(self, format: str, *args: Any) -> None:
                """The test's output is its own."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def says(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    def waits(self, handler: BaseHTTPRequestHandler) -> None:
        """Silence until the test is over."""
        self.released.wait(20)
        handler.close_connection = True


@contextmanager
def running() -> Iterator[Upstream]:
    """The server, up for the block; retries don't wait meanwhile."""
    upstream = Upstream()
    upstream.thread.start()
    with stamina.set_testing(True, attempts=10, cap=True):
        yield upstream
    upstream.released.set()
    upstream.server.shutdown()
    upstream.server.server_close()
    upstream.thread.join()


def model(upstream: Upstream | str, **settings: Any) -> OpenAIChatModel:
    url = upstream if isinstance(upstream, str) else upstream.url
    return OpenAIChatModel(ModelSettings(base_url=url, api_key=KEY, name="tiny", **settings))


def ask(chat_model: OpenAIChatModel, **parameters: float) -> list[Event]:
    messages = [{"role": "user", "content": "Why?"}]
    return list(chat_model.stream(ModelRequest(messages, "Why?", parameters=parameters)))


def failure(upstream: Upstream | str, **settings: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        ask(model(upstream, **settings))
    return caught.value


def start(handler: BaseHTTPRequestHandler, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    if "Content_Length" not in headers:
        handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def send(handler: BaseHTTPRequestHandler, *parts: bytes) -> None:
    for part in parts:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.flush()


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **more: str) -> bytes:
    content = {} if text is None else {"content": text}
    return event({"choices": [{"index": 0, "delta": content | more, "finish_reason": finish}]})


def streams(*parts: bytes) -> Script:
    """A whole stream of these parts."""

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, *parts)
        handler.wfile.write(b"0\r\n\r\n")

    return script


def says(*parts: bytes, kind: str | None = None, pause: float = 0.0) -> Script:
    """A body of these parts that ends with its connection; without a content type unless one is given."""

    def script(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if kind is not None:
            handler.send_header("Content-Type", kind)
        handler.send_header("Connection", "close")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            time.sleep(pause)
        handler.close_connection = True

    return script


def trickles(body: bytes, status: int = 200, kind: str = "application/json") -> Script:
    """A body that comes byte by byte for ten seconds and more, faster than any silence is noticed."""

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler, status, kind, Content_Length="1000000")
        handler.wfile.write(body)
        for _ in range(500):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.02)

    return script


def refuses(status: int, body: Any, kind: str = "application/json", **headers: str) -> Script:
    text = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler, status, kind, Content_Length=str(len(text)), **headers)
        handler.wfile.write(text)

    return script


def cuts(*parts: bytes, reset: bool = False) -> Script:
    """A stream whose connection breaks behind these parts."""

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, *parts)
        if reset:
            time.sleep(0.05)  # a reset overtakes what the reader hasn't read yet
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.rfile.close()
            handler.wfile.close()
            handler.connection.close()
        handler.close_connection = True

    return script


DONE = event(b"[DONE]")
HELLO = streams(delta("Hel"), delta("lo"), delta(finish="stop"), DONE)
