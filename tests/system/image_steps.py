"""The Dockerfile's steps by hand, for machines without a container engine: `python -m tests.system.image_steps`.

Paths of the image lie below a folder, its `python` is this one. The program then runs as it would in a container:
with the image's environment alone, in its working directory, everything but the volume without write permission.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TOPS = ("src", "wheel", "opt", "srv")  # the folders that the Dockerfile makes in the image's root
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Each instruction's word and the rest, continued lines joined."""
    kept = "".join(line for line in dockerfile.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    for line in kept.replace("\\\n", "").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()


def sent_files(ignore: str) -> Iterator[Path]:
    """What .dockerignore lets through, of the files that git knows or would know."""
    rules = [line for line in ignore.splitlines() if line and not line.startswith("#")]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.splitlines()
    for name in listed:
        names = [name, *map(str, list(Path(name).parents)[:-1])]
        last = [rule for rule in rules if any(fnmatch(part, rule.lstrip("!")) for part in names)][-1]
        if last.startswith("!") and (ROOT / name).is_file():
            yield Path(name)


class Image:
    """What the steps leave behind below `root`; `environment`, `workdir`, `health` and `command` as they say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said = list(instructions((ROOT / "Dockerfile").read_text("utf-8")))
        self.environment: dict[str, str] = {}
        self.workdir, self.volume, self.user, self.signal = root, root, "", ""
        self.health: list[str] = []
        self.command: list[str] = []
        (root / "bin").mkdir()
        (root / "bin" / "python").symlink_to(Path(sys.base_prefix, "bin", "python3"))

    def build(self) -> "Image":
        """Take every step. Raises CalledProcessError where one fails."""
        for word, rest in self.said:
            getattr(self, f"_{word.lower()}")(rest)
        for folder, _, files in os.walk(self.root):
            if not Path(folder).is_relative_to(self.volume):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    if not os.path.islink(path):
                        os.chmod(path, os.stat(path).st_mode & ~0o222)
        return self

    def here(self, text: str) -> str:
        """The text with the image's paths moved below the root, and its user as this one."""
        moved = re.sub(rf"(?<![\w/.-])/(?={'|'.join(TOPS)}\b)", f"{self.root}/", text)
        return re.sub(r"\b10001\b", str(os.geteuid()), moved)

    def start(self, command: list[str], stdout: int | None = None, **settings: str) -> subprocess.Popen[bytes]:
        """A process of the container, with these settings laid over the image's. It can't write but to the volume."""
        return subprocess.Popen([*UNPRIVILEGED, "env", *command], cwd=self.workdir, env=self.environment | settings,
                                stdout=stdout)

    def _from(self, rest: str) -> None:
        self.environment = {"PATH": f"{self.root}/bin:/usr/local/bin:/usr/bin:/bin"}

    def _arg(self, rest: str) -> None:
        self.environment |= dict([shlex.split(rest)[0].split("=")])

    def _workdir(self, rest: str) -> None:
        self.workdir = Path(self.here(rest))
        self.workdir.mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        if rest.startswith("--from="):  # a path that is the same in both stages
            _, source, target = rest.split()
            assert source == target
            return
        assert rest == ". ."
        for name in sent_files((ROOT / ".dockerignore").read_text("utf-8")):
            (self.workdir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.workdir / name)

    def _run(self, rest: str) -> None:
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")} | {"PIP_QUIET": "1"}
        subprocess.run(["sh", "-ec", self.here(rest)], cwd=self.workdir, env=pip | self.environment, check=True)

    def _env(self, rest: str) -> None:
        for pair in shlex.split(rest):
            name, _, value = pair.partition("=")
            self.environment[name] = self.here(value.replace("$PATH", self.environment["PATH"]))

    def _volume(self, rest: str) -> None:
        self.volume = Path(self.here(rest))

    def _user(self, rest: str) -> None:
        self.user = rest

    def _expose(self, rest: str) -> None:
        assert rest == self.environment["CHATKEEP_PORT"]

    def _stopsignal(self, rest: str) -> None:
        self.signal = rest

    def _healthcheck(self, rest: str) -> None:
        self.health = json.loads(rest[rest.index("["):])

    def _cmd(self, rest: str) -> None:
        self.command = json.loads(rest)


if __name__ == "__main__":
    image = Image(Path(tempfile.mkdtemp())).build()
    size = int(subprocess.run(["du", "-sm", image.root / "opt"], capture_output=True, check=True).stdout.split()[0])
    print(f"{image.root}: {size} MB above the base image; runs {image.command} in {image.workdir}")
