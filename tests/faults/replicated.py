"""A primary and a synchronous standby: what one has committed, the other has."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import psycopg2

from tests.faults.world import Postgres
from tests.processes import wait_until

_PORT = "5433"  # of the standby, in the primary's socket folder


class Replicated(Postgres):
    """Both stand behind one URL, which leads to whichever takes writes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "primary")
        self.standby = folder / "standby"
        self.sockets = self.server.get_uri().rpartition("host=")[2]
        self.standby.mkdir(mode=0o700)
        owner = self.folder.stat()
        os.chown(self.standby, owner.st_uid, owner.st_gid)
        self._run("pg_basebackup", "-h", self.sockets, "-U", "postgres", "-D", str(self.standby), "-R", "-X", "stream")
        self._control("start", "-w", "-o", f'-h "" -k {self.sockets} -p {_PORT}', "-l", str(self.standby / "log"),
                      folder=self.standby)
        with self._connected() as cursor:
            cursor.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            cursor.execute("SELECT pg_reload_conf()")
        wait_until(self._is_synchronous)

    @property
    def url(self) -> str:
        hosts = f"host={self.sockets},{self.sockets}&port=5432,{_PORT}"
        return f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """The primary is gone from one moment to the next; the standby takes over."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._control("stop", "-m", "immediate", "-w")
        self._control("promote", "-w", folder=self.standby)

    def stop(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._control("stop", "-m", "immediate", "-w", folder=self.standby)
        self.server.cleanup()
        shutil.rmtree(self.standby, ignore_errors=True)

    @contextlib.contextmanager
    def _connected(self):  # type: ignore[no-untyped-def]
        opened = psycopg2.connect(self.server.get_uri())
        opened.autocommit = True
        yield opened.cursor()
        opened.close()

    def _is_synchronous(self) -> bool:
        with self._connected() as cursor:
            cursor.execute("SELECT sync_state FROM pg_stat_replication")
            return cursor.fetchall() == [("sync",)]
