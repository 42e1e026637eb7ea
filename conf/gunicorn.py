"""How gunicorn serves the application: threads, since a stream holds one; no temporary files on disk."""

import re
from typing import Any

from gunicorn.glogging import Logger

from conf.settings import Settings

_REQUEST = re.compile(r"(?s)(Invalid request from ip=[^ ]*: [^:'\"]*).*")


def gunicorn_options(settings: Settings) -> dict[str, Any]:
    """gunicorn's settings for these of ours."""
    return {
        "bind": f"{settings.host}:{settings.port}",
        "worker_class": "gthread",
        "workers": settings.server.workers,
        "threads": settings.server.threads,
        "timeout": 60,  # of the accepting loop; a stream may be silent for longer
        "graceful_timeout": int(settings.server.drain_delay + settings.server.drain_timeout) + 20,
        "keepalive": 30,
        "accesslog": None,
        "loglevel": "info" if settings.log_level == "DEBUG" else settings.log_level.lower(),  # at debug it tells paths
        "logger_class": ServerLog,
        "proc_name": "chatkeep",
        "control_socket_disable": True,
    }


class ServerLog(Logger):  # type: ignore[misc]
    """gunicorn's own lines among ours, without the lines of a request that it repeats."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True

    def warning(self, msg: Any, *args: Any, **how: Any) -> None:
        super().warning(_REQUEST.sub(r"\1", str(msg)), *args, **how)

    def exception(self, msg: Any, *args: Any, **how: Any) -> None:
        super().exception(str(msg).partition(" %s")[0], **how)
