"""Two servers on one PostgreSQL behind PgBouncer, set up as docs/postgresql.md says: a run crosses them."""

import contextlib
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import requests

from tests.guides import blocks, exports
from tests.processes import ModelServer, ServerProcess, free_port, wait_until

pytestmark = pytest.mark.system
GUIDE = "docs/postgresql.md"
BACKENDS = "3"  # for both servers together, so that they have to share


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The socket folder of a PostgreSQL on which the guide's SQL has run."""
    with contextlib.closing(psycopg2.connect(postgres)) as connection:
        connection.autocommit = True
        for statement in "".join(blocks(GUIDE, "sql")).split(";\n")[:-1]:
            connection.cursor().execute(statement)
        yield postgres.rpartition("host=")[2]
        connection.cursor().execute("DROP DATABASE chatkeep WITH (FORCE)")
        connection.cursor().execute("DROP ROLE chatkeep")


@pytest.fixture
def pooler(database: str, tmp_path: Path) -> Iterator[int]:
    """The port of the guide's PgBouncer before that database."""
    port = free_port()
    [config] = blocks(GUIDE, "ini")
    for printed, here in (
        ("host=127.0.0.1 port=5432", f"host={database}"), ("6432", str(port)), ("scram-sha-256", "plain"),
        ("/etc/pgbouncer", database), ("default_pool_size = 20", f"default_pool_size = {BACKENDS}"),
    ):
        assert printed in config
        config = config.replace(printed, here)
    owner = pwd.getpwuid(os.stat(database).st_uid)  # PgBouncer, like PostgreSQL, doesn't run as root
    Path(database, "userlist.txt").write_text('"chatkeep" "secret"\n')
    path = Path(database, "pgbouncer.ini")
    path.write_text(config + "unix_socket_dir =\n")
    command = ["pgbouncer", *(["-u", owner.pw_name] if os.geteuid() == 0 else []), str(path)]
    with (tmp_path / "pgbouncer.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        yield port
        process.terminate()


@pytest.fixture
def pair(pooler: int, database: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess, ModelServer]]:
    """Two servers with the guide's settings, and the model that both ask."""
    model = ModelServer(["one ", "two ", "three ", "four"])
    [environment] = (found for block in blocks(GUIDE, "sh") if "CHATKEEP_MIGRATE_URL" in (found := exports(block)))
    environment["CHATKEEP_DATABASE_URL"] = environment["CHATKEEP_DATABASE_URL"].replace("6432", str(pooler))
    environment["CHATKEEP_MIGRATE_URL"] = f"postgresql://chatkeep:secret@/chatkeep?host={database}"
    environment |= {"CHATKEEP_MODEL_BASE_URL": model.base_url, "CHATKEEP_MODEL_NAME": "slow"}
    servers = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        servers.append(ServerProcess(tmp_path / name, **environment))
    try:
        yield (*(server.start() for server in servers), model)
    finally:
        model.close()
        for server in servers:
            server.stop()


def read_until(lines: Iterator[bytes], word: bytes) -> bytes:
    seen = b""
    while word not in seen:
        seen += next(lines)
    return seen


@pytest.mark.timeout(180)
def test_a_run_is_followed_and_stopped_by_the_other_server_behind_a_transaction_pooler(pair: Any) -> None:
    first, second, model = pair
    api = requests.Session()
    api.headers["Authorization"] = f"Bearer {first.token()}"
    chat = api.post(f"{first.base}/api/v1/chats", json={"name": "c"}).json()["data"]["id"]

    def asked() -> tuple[requests.Response, str]:
        answer = api.post(f"{first.base}/api/v1/chats/{chat}/completions", json={"question": "Count."}, stream=True)
        return answer, f"{second.base}/api/v1/runs/{answer.headers['X-Chatkeep-Run']}"

    here, there = asked()
    with here, api.get(f"{there}/events", stream=True, timeout=20) as followed:
        model.allow(1)
        lines = followed.iter_lines()
        read_until(lines, b"one")  # before the next word is said
        model.allow(3)
        read_until(lines, b'"finish_reason":"stop"')

    here, there = asked()
    with here:
        model.allow(1)
        lines = here.iter_lines()
        read_until(lines, b"one")
        assert api.post(f"{there}/cancel").json()["code"] == 0
        assert b'"finish_reason":"interrupted"' in read_until(lines, b'"data":true')
    sessions = wait_until(lambda: api.get(f"{second.base}/api/v1/chats/{chat}/sessions").json()["data"])
    assert {session["messages"][-1]["content"].strip() for session in sessions} == {"one two three four", "one"}
    assert '"findings": []' in second.run("doctor", "--json")
