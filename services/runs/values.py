"""What a run is made of: its states and endings, what it begins with, whose it is."""

import os
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import psutil

from db.document import CONVERSATIONS, PagedDocument
from db.ids import new_id


class RunStatus(StrEnum):
    QUEUED = "queued"
    ACTIVE = "active"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    ERRORED = "errored"


class Outcome(StrEnum):
    SUCCESS = "success"
    LENGTH = "length"
    ERROR = "error"
    CANCELLED = "cancelled"
    LOST = "lost"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Given:
    """A conversation begun elsewhere: stored where the session has no turn yet, its opening line only
    where the session has none. Each turn comes with its slot."""

    opening: list[dict[str, Any]] = field(default_factory=list)
    turns: list[tuple[list[dict[str, Any]], dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Start:
    """What a run begins with; `question` is the user's entry. Without a conversation nothing is stored."""

    tenant_id: str
    conversation_id: str | None
    question: dict[str, Any]
    document: PagedDocument = CONVERSATIONS
    given: Given = field(default_factory=Given)
    id: str = field(default_factory=new_id)
    kind: str = "chat"
    client_run_id: str | None = None
    idempotency_key: str | None = None

    @property
    def turn_id(self) -> str:
        return str(self.question["id"])


def this_process() -> str:
    """`<hostname>:<pid>:<process start>`: who owns this process's runs."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{psutil.Process(pid).create_time()}"


def is_dead_neighbour(owner: str) -> bool:
    """Whether `owner` is a process of this host that no longer lives."""
    host, pid, started = ["", "", "", *owner.rsplit(":", 2)][-3:]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        process = psutil.Process(int(pid))
        return str(process.create_time()) != started or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@dataclass(frozen=True, slots=True)
class Right:
    """Why a process may end a run: it owns it, or its owner's lease ran out."""

    condition: str
    values: tuple[Any, ...] = ()

    @classmethod
    def of_owner(cls, owner: str) -> "Right":
        return cls("owner = %s", (owner,))
