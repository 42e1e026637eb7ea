"""gunicorn around `create_app`. Importing by module name would find a user's own `api/` first.

SIGTERM drains: readiness turns 503, running answers get their time, the rest is stored as interrupted,
and only then do the threads end.
"""

import ctypes
import errno
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from gunicorn.app.base import BaseApplication

from api.app import close_app, create_app, drain_app
from conf.gunicorn import gunicorn_options
from conf.settings import Settings

_MMAP_THRESHOLD = -3  # its number in malloc.h


class Server(BaseApplication):  # type: ignore[misc]
    def __init__(self, settings: Settings, ready: Callable[[], None]) -> None:
        """`ready` is called once the server listens."""
        self.settings = settings
        self.ready = ready
        self.meeting = Path(mkdtemp(prefix="chatkeep-")) if settings.server.workers > 1 else None
        super().__init__()

    def load_config(self) -> None:
        for name, value in gunicorn_options(self.settings).items():
            self.cfg.set(name, value)
        self.cfg.set("when_ready", lambda arbiter: self.ready())
        self.cfg.set("post_worker_init", drain_before_exit)
        self.cfg.set("worker_exit", lambda arbiter, worker: close_app(worker.wsgi))
        self.cfg.set("on_exit", self._leave)

    def load(self) -> Any:
        _give_memory_back()
        return create_app(self.settings, meeting=self.meeting)

    def _leave(self, arbiter: Any) -> None:
        if self.meeting:
            rmtree(self.meeting, ignore_errors=True)


def _give_memory_back() -> None:
    """Take large blocks from the system one by one. glibc else keeps, in each thread, what a large upload took."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if adjust:
        adjust(_MMAP_THRESHOLD, 1_000_000)


def check_port(settings: Settings) -> None:
    """Raises ValueError, in words for an operator, where nobody can listen on the settings' address."""
    host = settings.host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gunicorn: a former life's port is free
        try:
            listener.bind((host, settings.port))
        except socket.gaierror as error:
            raise ValueError(f"{settings.host!r} is no address; name another by --host or CHATKEEP_HOST") from error
        except OSError as error:
            why = "is taken" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
            raise ValueError(
                f"port {settings.port} of {settings.host} {why}; "
                "choose another by --port, CHATKEEP_PORT or `make run PORT=...`"
            ) from error


def drain_before_exit(worker: Any) -> None:
    """Put draining before gunicorn's own reaction to SIGTERM, in a thread: answers go on meanwhile."""
    leave: Any = signal.getsignal(signal.SIGTERM)

    def drain() -> None:
        drain_app(worker.wsgi)
        leave(signal.SIGTERM, None)

    def on_term(number: int, frame: Any) -> None:
        threading.Thread(target=drain, name="drain", daemon=True).start()

    signal.signal(signal.SIGTERM, on_term)
