from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ModelServer, ServerProcess


@pytest.fixture
def server(url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server process on a database of each engine, not started yet."""
    server = ServerProcess(tmp_path, CHATKEEP_DATABASE_URL=url)
    yield server
    server.stop()


@pytest.fixture
def slow_model(server: ServerProcess) -> Iterator[ModelServer]:
    """A model behind that server which says six words, each when it may."""
    model = ModelServer(["one ", "two ", "three ", "four ", "five ", "six"])
    server.environment |= {"CHATKEEP_MODEL_BASE_URL": model.base_url, "CHATKEEP_MODEL_NAME": "slow",
                           "CHATKEEP_SERVER_DRAIN_TIMEOUT": "1"}
    yield model
    model.close()
