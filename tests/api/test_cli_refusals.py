"""What an operator can mend is one sentence and exit code 2; a reading command makes nothing."""

import os
import pty
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli import main
from conf.settings import Settings
from db.database import connection, database, open_database
from db.models import Tenant
from services.api_tokens import ApiTokenService, TenantService
from services.principal import Principal
from tests.databases import another_database, execute
from tests.processes import ROOT, free_port

READING = [["token", "list"], ["token", "revoke", "x"], ["dataset", "list"], ["dataset", "delete", "d"],
           ["token", "create", "--embed", "x"]]
EXISTING = [["doctor"], ["prune"], ["doctor", "--fix"], ["prune", "--yes"], *READING]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def refused(words: list[str], **environment: str) -> str:
    """The one sentence that a command refuses with."""
    done = CliRunner(env=environment).invoke(main, words)
    assert isinstance(done.exception, SystemExit) and done.exit_code == 2, done.output
    assert done.stdout == "" and len(done.stderr.strip().splitlines()) == 1, done.output
    return done.stderr.strip()


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_an_unknown_tenant_is_told_and_not_made(store: Settings, words: list[str]) -> None:
    TenantService.ensure("acme")
    said = refused([*words, "--tenant", "nope"], CHATKEEP_DATABASE_URL=store.database.url)
    assert said == "Error: there is no tenant 'nope'"
    open_database(store)
    with connection():
        assert [row.name for row in Tenant.select()] == ["acme"]


@pytest.mark.parametrize("words", EXISTING, ids=" ".join)
def test_a_database_that_is_not_there_is_told_and_not_made(words: list[str], folder: Path) -> None:
    said = refused(words)
    assert "there is no database at var/chatkeep.db; `chatkeep migrate` makes it" in said
    assert os.listdir(folder) == []


@pytest.mark.parametrize("words", EXISTING, ids=" ".join)
def test_a_database_of_an_older_release_is_told_and_not_migrated(
    words: list[str], engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with another_database(engine, request, tmp_path) as url:
        if engine == "sqlite":
            Path(url.removeprefix("sqlite:///")).touch()
        said = refused(words, CHATKEEP_DATABASE_URL=url)
        assert "lacks migration 0001_initial; run `chatkeep migrate`" in said
        with connection():
            assert database.obj.get_tables(schema=database.obj.schema) == []
        database.obj.close_all()


def test_an_embed_token_wants_a_chat_of_its_tenant(store: Settings) -> None:
    tenant = TenantService.ensure("acme")
    words = ["token", "create", "--tenant", "acme", "--embed", "nope"]
    assert refused(words, CHATKEEP_DATABASE_URL=store.database.url) == "Error: the tenant has no chat 'nope'"
    open_database(store)
    assert ApiTokenService.list(Principal(tenant.id)) == []


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_busy_port_is_named_with_the_way_to_another_one(taken: int, folder: Path) -> None:
    ways = (["serve", "--port", str(taken)], {}), (["serve", "--demo"], {"CHATKEEP_PORT": str(taken)})
    for words, environment in ways:
        said = refused(words, **environment)
        assert said == (
            f"Error: port {taken} of 127.0.0.1 is taken; choose another by --port, CHATKEEP_PORT or `make run PORT=...`"
        )
    assert os.listdir(folder) == [], "the database was made for a server that can't start"


@pytest.mark.parametrize(("words", "said"), [
    (["serve", "--host", "no.such.host.invalid"], "'no.such.host.invalid' is no address; name another by --host"),
    (["serve", "--host", "192.0.2.1"], "of 192.0.2.1 can't be opened ("),
    (["serve", "--port", "70000"], "setting port: "), (["serve", "--workers", "0"], "setting server.workers: "),
])
def test_an_address_that_nobody_can_listen_on_is_refused(words: list[str], said: str) -> None:
    assert said in refused(words)


@pytest.mark.parametrize(("text", "said"), [
    ("database: [", "chatkeep.yaml isn't YAML: line 1, column 12"), ("a: b: c", "isn't YAML: line 1, column 5"),
    ("database: {url: mysql://x}", "must begin with sqlite:/// or postgresql://, not 'mysql'"),
    ("database: {url: 'postgresql://x:1/y', schema: 'A B'}", "setting database.schema"),
    ("database: {url: 'postgresql://me@127.0.0.1:1/y'}", "the database is not reachable: "),
    ("migrate_url: 'postgresql://me@127.0.0.1:1/y'", "setting database: `migrate_url` and `database.url` name"),
])
def test_a_settings_file_that_cannot_be_used_is_refused(folder: Path, text: str, said: str) -> None:
    (folder / "chatkeep.yaml").write_text(text)
    assert said in refused(["migrate"])


@pytest.mark.parametrize("url", ["me:hunter2@[::1/x", "me:hunter%zz2@127.0.0.1/y", "me:hunter2@127.0.0.1/y?foo=1"])
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    for words in (["migrate"], ["doctor"], ["backup", "b"], ["serve", "--port", str(free_port())]):
        said = refused(words, CHATKEEP_DATABASE_URL=f"postgresql://{url}")
        assert "the database's URL can't be read" in said and "hunter" not in said


@pytest.mark.parametrize("sign", ["@", "/", "@:", "@/", "/@", "@,", "@?sslmode=", "@@", ":/", "/?", "@#"])
def test_no_piece_of_a_password_with_a_bare_sign_is_shown(sign: str) -> None:
    for words in (["migrate"], ["token", "create"], ["serve", "--port", str(free_port())]):
        for scheme in ("postgresql", "postgres"):
            said = refused(words, CHATKEEP_DATABASE_URL=f"{scheme}://me:abcq{sign}xyzq@127.0.0.1:1/y")
            assert "abcq" not in said and "xyzq" not in said, said
            assert "%40 for an @ in the password, %2F for a /" in said


@pytest.mark.parametrize("url", [
    "postgresql://me:hunter2", "postgresql://me:hunter2/y", "postgresql://me:847362/y", "postgresql:/me:hunter2@h/y",
    "hunter2@h/y", "me:hunter2@h/y", "hunter2:x@h/y", "hunter2",
])
def test_no_piece_of_an_address_without_its_parts_is_shown(url: str) -> None:
    said = refused(["migrate"], CHATKEEP_DATABASE_URL=url)
    assert "hunter2" not in said and "847362" not in said, said
    assert "postgresql://" in said


@pytest.mark.parametrize("text", [
    "database: 'postgresql://me:hunter2@h/y'", "database: {pool_size: 'postgresql://me:hunter2@h/y'}",
    "model: sk-hunter2", "migrate_url: ['postgresql://me:hunter2@h/y']", "models: [sk-hunter2]",
])
def test_a_secret_in_the_wrong_place_of_the_settings_is_not_shown(folder: Path, text: str) -> None:
    (folder / "chatkeep.yaml").write_text(text)
    said = refused(["migrate"])
    assert "setting " in said and "hunter2" not in said


@pytest.mark.parametrize("password", ["abcq%40xyzq", "abcq%2Fxyzq", "a:b", "a#b", "a?b", "a,b", "a[b", "", "%20"])
def test_a_password_with_an_encoded_or_harmless_sign_reaches_the_server(password: str) -> None:
    said = refused(["migrate"], CHATKEEP_DATABASE_URL=f"postgresql://me:{password}@127.0.0.1:1/y")
    assert 'connection to server at "127.0.0.1", port 1 failed' in said


def test_a_file_that_is_no_database_is_refused(folder: Path) -> None:
    (folder / "x.db").write_text("not a database, but long enough to be looked at: " * 50)
    for words in (["migrate"], ["doctor"], ["serve", "--port", str(free_port())], ["backup", "b"]):
        assert "file is not a database" in refused(words, CHATKEEP_DATABASE_URL="sqlite:///x.db")


def test_a_missing_right_is_refused(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if engine == "sqlite":
        pytest.skip("root may write everywhere")
    with another_database(engine, request, tmp_path) as url:
        execute(url, "DROP ROLE IF EXISTS guest")
        execute(url, "CREATE ROLE guest LOGIN")
        said = refused(["migrate"], CHATKEEP_DATABASE_URL=url.replace("postgres:@", "guest@"))
        database.obj.close_all()
        execute(url, "DROP ROLE guest")
    assert "the database refuses: permission denied for database" in said


def on_a_terminal(script: str, **environment: str) -> str:
    """What a Python script shows on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=theirs, stdout=theirs, stderr=theirs, cwd=Path.cwd(),
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
    process.wait(10)
    os.close(ours)
    return shown.decode()


LATE = """
import time
from api.cli_base import progress
with progress('working') as told:
    time.sleep(%s)
    told(1, 2)
"""
SAID = "from api.cli_base import say\nsay('red', 'red')"


def test_progress_is_shown_on_a_terminal_once_it_has_taken_a_second(folder: Path) -> None:
    assert "working" in on_a_terminal(LATE % 1.5)
    assert on_a_terminal(LATE % 0.1) == ""
    done = subprocess.run([sys.executable, "-c", LATE % 1.2], env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


def test_colours_are_for_terminals_that_want_them(folder: Path) -> None:
    assert "\x1b[31m" in on_a_terminal(SAID)
    assert on_a_terminal(SAID, NO_COLOR="1") == "red\r\n"
    assert "\x1b[3" not in on_a_terminal(LATE % 1.5, NO_COLOR="1")
    done = subprocess.run([sys.executable, "-c", SAID], env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, check=True)
    assert done.stdout == b"red\n"
