"""For tests that leave streams unread: an answer that waits, and a server that is closed when its runs have ended."""

from collections.abc import Iterator

import pytest
from flask import Flask

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
