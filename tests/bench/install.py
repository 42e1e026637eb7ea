"""How large an installation is: the wheel and what it asks for, in an environment of its own."""

import subprocess
import sys
import venv
from pathlib import Path

from tests.bench.report import Report
from tests.processes import ROOT

LARGEST = 8


def installed_size(report: Report, folder: Path) -> None:
    """The environment's megabytes, and those of its largest packages."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True, timeout=300)
    venv.create(folder / "env")
    [wheel] = folder.glob("chatkeep-*.whl")
    subprocess.run([*pip, "--python", folder / "env", "install", wheel], check=True, timeout=900)
    [packages] = (folder / "env").glob("lib/python*/site-packages")
    sizes = {each.name: megabytes(each) for each in packages.iterdir() if not each.name.endswith(".dist-info")}
    report.add("an environment with the wheel and all that it asks for", megabytes(folder / "env"), "MB")
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:LARGEST]:
        report.add(f"  of it {name}", sizes[name], "MB")


def megabytes(path: Path) -> float:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(each.lstat().st_size for each in files if not each.is_dir()) / 1e6
