"""Every command of the README runs as printed, in order, in one shell; so does its SDK script."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, free_port

README = (ROOT / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path):
    """A copy of what git would give a stranger, with this environment as its `.venv`."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout.split()
    for name in listed:
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    os.symlink(sys.prefix, tmp_path / ".venv")
    (Path(sys.prefix) / "app.stamp").touch()
    return tmp_path


def test_every_command_runs_as_printed_in_one_shell(checkout):
    port = free_port()
    script = ["set -e", "trap 'kill $SERVER' EXIT"]
    for block in blocks("sh"):
        if block == "make run\n":  # it serves until it is stopped, so it goes to the background
            script += [
                "make run >run.log 2>&1 & SERVER=$!",
                "for i in $(seq 100); do curl -sf http://127.0.0.1:$PORT/readyz >ready.json && break; sleep 0.3; done",
            ]
        elif block == "make test\n":  # this very test runs inside it
            script.append("make -n test")
        else:
            script.append(block)
    (checkout / "sdk.py").write_text(blocks("python")[0].replace("9380", str(port)))
    script += [
        "sed -i \"s/<token>/$(cat var/demo-token)/\" sdk.py", ".venv/bin/python sdk.py", "echo everything ran",
        "kill $(pgrep -P $SERVER) 2>/dev/null || true",
    ]
    environment = os.environ | {"PORT": str(port), "PYTHONPATH": ""}
    with subprocess.Popen(
        ["bash", "-c", "\n".join(script)], cwd=checkout, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=110)
        finally:
            if (run_log := checkout / "run.log").exists():
                print(run_log.read_text())
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert "everything ran" in printed, printed
    assert '"final":true' in printed and "[ID:" in printed
    assert "3 messages are stored" in printed
