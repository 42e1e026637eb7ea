"""For tests that leave streams unread: the server is closed when its runs have ended."""

from collections.abc import Iterator

import pytest
from flask import Flask

from db.database import connection, fetch
from tests.contracts.wire import ticks


@pytest.fixture
def settled(app: Flask) -> Iterator[None]:
    """Ends after the test's gates were opened and before the database is closed under a worker."""
    yield
    for _ in ticks(10):
        with connection():
            if not fetch("SELECT 1 FROM {run} WHERE status IN ('active', 'queued')"):
                return
