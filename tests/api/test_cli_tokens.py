"""`chatkeep token`: who gets one, until when, and what is refused before anything is made."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli import main
from conf.settings import Settings
from db.database import connection, open_database
from db.models import ApiToken
from services.api_tokens import ApiTokenService, TenantService
from services.errors import Unauthorized
from services.principal import Principal
from tests.factories import DialogFactory

DAY = 86_400_000


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def run(*words: str, url: str) -> str:
    done = CliRunner(env={"CHATKEEP_DATABASE_URL": url}).invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words: str) -> str:
    """The last line of a refusal, before which nothing was made."""
    done = CliRunner().invoke(main, words)
    assert isinstance(done.exception, SystemExit) and (done.exit_code, done.stdout) == (2, ""), done.output
    assert list(Path().iterdir()) == []
    return done.stderr.strip().splitlines()[-1]


def told(*words: str, url: str) -> Any:
    return json.loads(run(*words, "--json", url=url))


@pytest.mark.parametrize("tenant", ["", " ", "\t\n", "x" * 256])
@pytest.mark.parametrize("words", [["token", "create"], ["demo"], ["dataset", "add", "d", __file__]], ids=" ".join)
def test_a_tenant_has_a_name(words: list[str], tenant: str) -> None:
    assert "a tenant's name has 1 to 255 characters" in refused(*words, "--tenant", tenant)


@pytest.mark.parametrize("words", [["token", "list"], ["token", "revoke", "x"], ["dataset", "list"]], ids=" ".join)
def test_a_nameless_tenant_that_an_older_release_made_can_still_be_read(store: Settings, words: list[str]) -> None:
    done = CliRunner(env={"CHATKEEP_DATABASE_URL": store.database.url}).invoke(main, [*words, "--tenant", ""])
    assert (done.exit_code, done.stderr) == (2, "Error: there is no tenant ''\n")


def test_an_origin_without_a_page_to_embed_is_refused() -> None:
    assert "--origin is for a chat's page; name the chat with --embed" in refused(
        "token", "create", "--origin", "https://shop.example.org"
    )


@pytest.mark.parametrize("origin", [
    "not a url", "", "*", "null", "shop.example.org", "https://", "https://a/", "https://a/path", "https://a?b",
    "https://a#b", "https://me@a", "https://a:x", "https://a:", "https://*.example.org", "https://a b", "//a",
    "https://a,https://b",
])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    assert f"{origin!r} is no origin" in refused("token", "create", "--embed", "x", "--origin", origin)


def test_an_origin_is_kept_as_browsers_write_it(store: Settings) -> None:
    principal = Principal(TenantService.ensure("acme").id)
    with connection():
        chat = DialogFactory(tenant_id=principal.tenant_id)
    origins = ["https://Shop.example.org", "http://127.0.0.1:8080", "https://[::1]:1", "app://local"]
    options = [word for origin in origins for word in ("--origin", origin)]
    made = told("token", "create", "--tenant", "acme", "--embed", chat.id, *options, url=store.database.url)
    open_database(store)
    with connection():
        assert ApiToken.get_by_id(made["id"]).origins == [origin.lower() for origin in origins]


def test_a_token_expires_after_its_days_and_the_list_says_when(store: Settings) -> None:
    url = store.database.url
    made, forever = told("token", "create", "--days", "3", "--name", "short", url=url), told("token", "create", url=url)
    assert abs(made["expires_time"] - time.time() * 1000 - 3 * DAY) < 60_000 and forever["expires_time"] is None
    rows = {row["id"]: row["expires_time"] for row in told("token", "list", url=url)}
    assert rows == {made["id"]: made["expires_time"], forever["id"]: None}
    open_database(store)
    assert ApiTokenService.authenticate(made["token"]) == ApiTokenService.authenticate(forever["token"])
    with connection():
        ApiToken.update(expires_time=1_000).where(ApiToken.id == made["id"]).execute()
    with pytest.raises(Unauthorized):
        ApiTokenService.authenticate(made["token"])
    lines = {line.split()[0]: line for line in run("token", "list", url=url).splitlines()}
    assert "  expired 1970-01-01 00:00 UTC  short" in lines[made["id"]] and "expire" not in lines[forever["id"]]


@pytest.mark.parametrize("days", ["0", "-1", "x", "1.5", "99999999999999999999"])
def test_days_are_a_number_above_zero(days: str) -> None:
    assert "--days" in refused("token", "create", "--days", days)


def test_the_id_that_is_told_revokes_the_token(store: Settings) -> None:
    url = store.database.url
    made = told("token", "create", url=url)
    assert told("token", "revoke", made["id"], url=url) == {"revoked": True}
    assert told("token", "list", url=url) == []
    assert run("token", "revoke", told("token", "create", url=url)["token"], url=url) == "revoked\n"
