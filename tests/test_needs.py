"""What the system tests need and don't find is named with the line that installs it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT
from tests.system.needs import PACKAGES, missing

NEEDS = [sys.executable, "-m", "tests.system.needs"]


def test_what_is_missing_is_named_with_its_package_and_exit_code_2(tmp_path: Path) -> None:
    for program in set(PACKAGES) - {"nginx", "chromium"}:
        (tmp_path / program).touch(mode=0o755)
    lacking = missing(str(tmp_path))
    assert set(lacking) <= {"nginx", "chromium"}
    assert "nginx" in lacking or os.path.exists("/usr/sbin/nginx")


def test_the_command_tells_the_apt_line() -> None:
    lacking = missing("/nowhere")
    done = subprocess.run(NEEDS, cwd=ROOT, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == (2 if lacking else 0)
    assert all(PACKAGES[program] in done.stderr.splitlines()[1] for program in lacking)
    packages = subprocess.run([*NEEDS, "--packages"], cwd=ROOT, env={"PATH": "/nowhere"}, capture_output=True,
                              text=True, check=True).stdout.split()
    assert packages == [PACKAGES[program] for program in lacking]
