"""For tests of streams: the app behind a socket, an answer that waits, a server closed when its runs have ended."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from db.database import connection, fetch
from tests.contracts.wire import ticks
from tests.fakes import Gate, ScriptedModel


@pytest.fixture
def settled(app: Flask) -> Iterator[None]:
    """Ends after the test's gates were opened and before the database is closed under a worker."""
    yield
    for _ in ticks(10):
        with connection():
            if not fetch("SELECT 1 FROM {run} WHERE status IN ('active', 'queued')"):
                return


@pytest.fixture
def gate(model: ScriptedModel) -> Iterator[Gate]:
    """The answer to "slow?": it says "half" and waits."""
    gate = Gate("half")
    model.script("slow?", gate)
    yield gate
    gate.opened.set()


class Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None: ...


@pytest.fixture
def address(app: Flask) -> Iterator[tuple[str, int]]:
    """The app behind a socket, a thread a connection."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield "127.0.0.1", server.server_port
    server.shutdown()
    server.server_close()
    thread.join(5)
