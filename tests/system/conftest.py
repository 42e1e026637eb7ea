"""`make test-system`: what needs Debian's packages. Not collected by `make test`, which has none of them."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("markexpr") != "system" and collection_path.name.startswith("test_") else None
