"""The build copies README and docs into the package, so that an installed demo has its documents too."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithDocuments(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "api" / "documents"
        target.mkdir(parents=True, exist_ok=True)
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, target / name)
        for text in (ROOT / "docs").rglob("*.md"):  # no pictures: the package holds what the demo reads
            (target / text.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(text, target / text.relative_to(ROOT))


setup(cmdclass={"build_py": BuildWithDocuments})
