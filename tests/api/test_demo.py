"""The demo: told when the server listens; its token is kept in a file of its tenant's, and none is ever revoked."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from api.demo import TOKEN_FILE, ensure_token, token_file
from conf.settings import load_settings
from db.database import database, open_database
from db.migrate import migrate
from services.api_tokens import ApiTokenService, TenantService
from services.errors import Unauthorized
from services.principal import Principal
from tests.processes import ServerProcess, wait_until

Switch = Callable[..., Principal]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """Opens the database of this name; the tenant of this name in it."""
    monkeypatch.chdir(tmp_path)

    def opened(name: str, tenant: str = "default") -> Principal:
        settings = load_settings(database={"url": f"sqlite:///{tmp_path / name}"})
        open_database(settings)
        migrate(settings)
        return Principal(TenantService.ensure(tenant).id)

    yield opened
    database.obj.close_all()


def is_valid(token: str) -> bool:
    try:
        return bool(ApiTokenService.authenticate(token))
    except Unauthorized:
        return False


def test_a_second_demo_has_the_token_of_the_first(use: Switch) -> None:
    assert ensure_token(use("a.db")) == ensure_token(use("a.db")) == TOKEN_FILE.read_text().strip()


def test_a_database_that_is_returned_to_keeps_every_token(use: Switch) -> None:
    first = ensure_token(use("a.db"))
    second = ensure_token(use("b.db"))
    again = ensure_token(use("a.db"))
    assert (is_valid(first), is_valid(again), again) == (True, True, TOKEN_FILE.read_text().strip())
    use("b.db")
    assert is_valid(second)


TENANTS = ["acme", "Acme & Söhne", "../../etc/passwd", "a/b", ".", "x" * 255, "ä" * 255]


@pytest.mark.parametrize("tenant", TENANTS, ids=lambda name: name[:20])
def test_another_tenants_token_is_in_a_file_of_its_own(use: Switch, tmp_path: Path, tenant: str) -> None:
    ours = ensure_token(use("a.db"))
    theirs = ensure_token(use("a.db", tenant))
    assert theirs == ensure_token(use("a.db", tenant)) == token_file(tenant).read_text().strip() != ours
    assert ours == ensure_token(use("a.db")) == TOKEN_FILE.read_text().strip()
    assert is_valid(ours) and is_valid(theirs)
    files = [path for path in tmp_path.rglob("demo-token*") if path.is_file()]
    assert {path.parent for path in files} == {tmp_path / "var"} and len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_the_files_of_tenants_are_told_apart() -> None:
    assert len({token_file(tenant) for tenant in ["default", *TENANTS]}) == 1 + len(TENANTS)


def test_a_file_that_others_could_read_is_closed_to_them(use: Switch) -> None:
    TOKEN_FILE.parent.mkdir()
    TOKEN_FILE.write_text("chatkeep-of-another-database")
    TOKEN_FILE.chmod(0o644)
    ensure_token(use("a.db"))
    assert TOKEN_FILE.stat().st_mode & 0o777 == 0o600


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
