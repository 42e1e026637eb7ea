"""The command line says what is wrong with a setting before anything starts, and which database it makes."""

import json

import pytest
from click.testing import CliRunner

from api.cli import main
from db.database import database
from tests.databases import another_database
from tests.processes import ServerProcess

ABSURD = {
    "runs.lease": ["-1", "nan", "1e9", "x"], "runs.flush": ["0", "60"], "runs.poll": ["-0", "inf"], "runs.limit": ["0"],
    "runs.queue_timeout": ["1e9"], "runs.grace": ["-1"], "stream.keep_alive": ["0", "inf"],
    "stream.durability": ["maybe"], "model.idle_timeout": ["0"], "model.total_timeout": ["x"],
    "model.connect_timeout": ["-1"], "model.first_token_timeout": ["0"], "server.drain_delay": ["-1"],
    "server.drain_timeout": ["1e9"], "database.pool_timeout": ["0"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ABSURD.items() for value in values])
def test_an_absurd_setting_stops_the_start_by_its_name(monkeypatch, tmp_path, name, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"CHATKEEP_{name.replace('.', '_').upper()}", value)
    done = CliRunner().invoke(main, ["serve"])
    assert (done.exit_code, name in done.output, "Traceback" in done.output) == (2, True, False)
    assert list(tmp_path.iterdir()) == []


def test_a_lease_that_one_late_renewal_would_lose_is_absurd_too(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHATKEEP_RUNS_RENEW", "10")
    done = CliRunner().invoke(main, ["serve"])
    assert done.exit_code == 2
    assert "`runs.renew` (10.0) must be at most half of `runs.lease` (15" in done.output


@pytest.mark.parametrize("words", [["token", "create"], ["migrate"]], ids=" ".join)
def test_a_new_database_is_named_on_standard_error_once_and_without_its_password(
    engine, request, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    with another_database(engine, request, tmp_path) as url:
        secret = "hunter2-very-secret"
        runner = CliRunner(env={"CHATKEEP_DATABASE_URL": url.replace("postgres:@", f"postgres:{secret}@")})
        first, second = runner.invoke(main, words), runner.invoke(main, words)
        database.obj.close_all()
    name = url.removeprefix("sqlite:///").rpartition("/")[2].partition("?")[0]
    [told] = first.stderr.splitlines()
    assert told.startswith("made a new database: ") and name in told and secret not in told
    assert ("schema chatkeep" in told) == (engine == "postgres")
    assert second.exit_code == 0 and second.stderr == ""


def test_a_database_named_by_a_relative_path_is_told_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(main, ["token", "create"]).stderr
    assert said == f"made a new database: {tmp_path}/var/chatkeep.db\n"
    database.obj.close_all()


def test_the_settings_of_a_file_are_read_by_the_server_and_the_commands_of_its_folder(tmp_path):
    server = ServerProcess(tmp_path)
    del server.environment["CHATKEEP_PORT"]
    (tmp_path / ".env").write_text(f"CHATKEEP_PORT={server.port}\nCHATKEEP_DATABASE_URL=sqlite:///other.db\n")
    try:
        told = json.loads(server.start().run("demo", "--json"))
        assert told["page"] == f"{server.base}/"
        assert (tmp_path / "other.db").exists() and not (tmp_path / "var" / "chatkeep.db").exists()
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        assert [line["place"] for line in lines if line["event"] == "made a new database"] == [f"{tmp_path}/other.db"]
    finally:
        server.stop()
