"""The command line says what is wrong with a setting before anything starts."""

import pytest
from click.testing import CliRunner

from api.cli import main

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
