"""SQLite's files belong to who runs the server: they hold what everybody said."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.settings import Settings, load_settings
from db.database import connection, database, open_database
from db.migrate import migrate
from services.api_tokens import TenantService


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a database is to be, under a umask that lets everybody read."""
    before = os.umask(0o022)
    yield tmp_path / "chats" / "chats.db"
    os.umask(before)


def filled(path: Path) -> Settings:
    settings = load_settings(database={"url": f"sqlite:///{path}"})
    open_database(settings)
    migrate(settings)
    TenantService.ensure("acme")
    return settings


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_a_new_database_and_the_logs_beside_it_are_read_by_their_owner_alone(path: Path) -> None:
    filled(path)
    with connection():
        assert modes(path.parent) == {"chats.db": 0o600, "chats.db-wal": 0o600, "chats.db-shm": 0o600}
    database.obj.close_all()


def test_a_file_that_is_there_keeps_its_mode(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    path.chmod(0o640)
    filled(path)
    database.obj.close_all()
    assert modes(path.parent) == {"chats.db": 0o640}


def test_a_link_that_leads_nowhere_yet_leads_to_such_a_file(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere.db")
    filled(path)
    database.obj.close_all()
    assert modes(tmp_path)["elsewhere.db"] == 0o600


def test_opening_a_database_makes_no_file_before_it_is_used(path: Path) -> None:
    open_database(load_settings(database={"url": f"sqlite:///{path}"}))
    assert not path.exists()
