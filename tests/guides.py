"""The guides as tests read them: what they print is what runs."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

GUIDES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))


def blocks(guide: str, language: str) -> list[str]:
    """The texts of a guide's blocks in this language, in order."""
    text = (ROOT / guide).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def exports(script: str) -> dict[str, str]:
    """The variables that a shell block exports."""
    return dict(re.findall(r"^export (\w+)=(.*)$", script, re.MULTILINE))


def check_out(folder: Path) -> None:
    """A copy of what git would give a stranger, with this environment as its `.venv`."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout.split()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    os.symlink(sys.prefix, folder / ".venv")
    (Path(sys.prefix) / "app.stamp").touch()


def run_in_one_shell(folder: Path, script: list[str], **environment: str) -> str:
    """What these blocks print in that checkout. Raises AssertionError with it where one fails."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("CHATKEEP_")}
    own = f"{sys.prefix}/bin"  # a stranger's PATH doesn't lead into the checkout's environment
    path = os.pathsep.join(part for part in settings["PATH"].split(os.pathsep) if part != own)
    settings |= {"PYTHONPATH": str(folder), "PATH": path} | environment
    with subprocess.Popen(
        ["bash", "-c", "\n".join(["set -e", *script, "echo everything ran"])], cwd=folder, env=settings,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=110)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert "everything ran" in printed, printed
    return printed
