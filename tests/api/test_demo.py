"""The demo: told when the server listens; its token is kept in a file, one for each file in each database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from api.demo import TOKEN_FILE, ensure_token
from conf.settings import load_settings
from db.database import database, open_database
from db.migrate import migrate
from services.api_tokens import ApiTokenService, TenantService
from services.errors import Unauthorized
from services.principal import Principal
from tests.processes import ServerProcess, wait_until

Switch = Callable[[str], Principal]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """Opens the database of this name; its demo's tenant."""
    monkeypatch.chdir(tmp_path)

    def opened(name: str) -> Principal:
        settings = load_settings(database={"url": f"sqlite:///{tmp_path / name}"})
        open_database(settings)
        migrate(settings)
        return Principal(TenantService.ensure("default").id)

    yield opened
    database.obj.close_all()


def is_valid(token: str) -> bool:
    try:
        return bool(ApiTokenService.authenticate(token))
    except Unauthorized:
        return False


def test_a_second_demo_has_the_token_of_the_first(use: Switch) -> None:
    assert ensure_token(use("a.db")) == ensure_token(use("a.db")) == TOKEN_FILE.read_text().strip()


def test_a_database_that_is_returned_to_has_one_valid_token_for_the_file(use: Switch) -> None:
    first = ensure_token(use("a.db"))
    ensure_token(use("b.db"))
    again = ensure_token(use("a.db"))
    assert (is_valid(first), is_valid(again), again) == (False, True, TOKEN_FILE.read_text().strip())
    assert len(ApiTokenService.list(use("a.db"))) == 1


def test_the_token_of_another_folder_and_one_that_was_only_named_so_stay(
    use: Switch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    principal = use("a.db")
    first = ensure_token(principal)
    _, own = ApiTokenService.create(principal, "demo")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert is_valid(ensure_token(principal)) and is_valid(first) and is_valid(own)


def test_a_server_with_the_demo_tells_where_it_listens_once_it_does(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    try:
        log = server.start("", "--demo").log
        said = wait_until(lambda: "Ask from a shell" in log.read_text() and log.read_text())
        token = (tmp_path / TOKEN_FILE).read_text().strip()
        assert f"Page    {server.base}/\nToken   {token}\n" in said
        assert said.index("Listening at") < said.index("Page    ")
        chats = requests.get(f"{server.base}/api/v1/chats", headers={"Authorization": f"Bearer {token}"}, timeout=10)
        assert [chat["name"] for chat in chats.json()["data"]["chats"]] == ["Chatkeep"]
    finally:
        server.stop()
