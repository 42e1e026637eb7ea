"""A model server that does what a test says."""

from collections.abc import Iterator

import pytest

from tests.services.rag.model_server import Upstream, running


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with running() as upstream:
        yield upstream
