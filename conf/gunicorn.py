"""How gunicorn serves the application: threads, since a stream holds one; no temporary files on disk."""

from typing import Any

from conf.settings import Settings


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
        "loglevel": "warning",
        "proc_name": "chatkeep",
        "control_socket_disable": True,
    }
