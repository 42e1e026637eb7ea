"""Runs: what is being answered, and stopping it. Our own routes: the HTTP status is the right one."""

from datetime import UTC, datetime
from typing import Any, Literal, NotRequired

from flask import Blueprint, Response, request
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.described import described
from api.ragflow_frames import AnswerEvent, FailureEvent, RagflowFrames
from api.responses import success
from api.sse import position, stream
from db.models import Run
from services.conversation_service import ConversationService
from services.dialog_service import DialogService
from services.errors import InvalidArgument
from services.events import ErrorCode, FinishReason
from services.runs.rows import RunService
from services.runs.values import Outcome, RunStatus

blueprint = Blueprint("runs", __name__, url_prefix="/api/v1")
blueprint.before_request(authenticate)


class RunUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int


class RunRow(TypedDict):
    """One generation. A run that answers without a session has none; times are ISO 8601."""

    id: str
    session_id: str | None
    kind: Literal["chat", "openai", "channel", "agent"]
    message_id: str | None
    status: RunStatus
    outcome: Outcome | None
    finish_reason: FinishReason | None
    error_code: ErrorCode | None
    usage: RunUsage | None
    cancel_requested: bool
    started_at: str | None
    ended_at: str | None


class RunList(TypedDict, total=False):
    status: list[RunStatus | Literal[""]]


class Cancelled(TypedDict):
    id: str
    cancel_requested: Literal[True]


Resuming = TypedDict("Resuming", {"Last-Event-ID": NotRequired[str]})

_run = described(RunRow, statuses=(404,))
_cancelling = described(Cancelled, statuses=(404, 409))
_following = described(None, frame=AnswerEvent | FailureEvent, headers=Resuming, statuses=(404, 409))


@blueprint.get("/chats/<chat_id>/sessions/<session_id>/runs")
@described(list[RunRow], query=RunList, statuses=(400, 404))
def list_runs(chat_id: str, session_id: str) -> Response:
    """A session's runs, newest first; `status` (repeatable) keeps those of these states."""
    _own_session(chat_id, session_id)
    statuses = [status for status in request.args.getlist("status") if status]
    unknown = next((status for status in statuses if status not in list(RunStatus)), None)
    if unknown is not None:
        raise InvalidArgument(f"`status` is one of {', '.join(RunStatus)}, not {unknown!r}")
    return success([_shown(run) for run in RunService.list(principal(), session_id, statuses)])


@blueprint.get("/chats/<chat_id>/sessions/<session_id>/runs/<run_id>")
@_run
def get_in_session(chat_id: str, session_id: str, run_id: str) -> Response:
    """One run of a session."""
    _own_session(chat_id, session_id)
    return success(_shown(RunService.get(principal(), run_id, session_id)))


@blueprint.post("/chats/<chat_id>/sessions/<session_id>/runs/<run_id>/cancel")
@_cancelling
def cancel_in_session(chat_id: str, session_id: str, run_id: str) -> Response:
    """Stop a run of a session."""
    _own_session(chat_id, session_id)
    return _cancel(RunService.get(principal(), run_id, session_id))


@blueprint.get("/chats/<chat_id>/sessions/<session_id>/runs/<run_id>/events")
@_following
def follow_in_session(chat_id: str, session_id: str, run_id: str) -> Response:
    """A run of a session, as it is or was said."""
    _own_session(chat_id, session_id)
    return _follow(RunService.get(principal(), run_id, session_id))


@blueprint.get("/runs/<run_id>")
@_run
def get(run_id: str) -> Response:
    """One run, by its id alone."""
    return success(_shown(RunService.get(principal(), run_id)))


@blueprint.post("/runs/<run_id>/cancel")
@_cancelling
def cancel(run_id: str) -> Response:
    """Stop a run: its partial answer is stored. 409 where it has ended, and nothing changes."""
    return _cancel(RunService.get(principal(), run_id))


@blueprint.get("/runs/<run_id>/events")
@_following
def follow(run_id: str) -> Response:
    """A run's frames from its first delta, or behind `Last-Event-ID`; each once, whichever server answers it."""
    return _follow(RunService.get(principal(), run_id))


def _follow(run: Run) -> Response:
    reading = chatkeep().completions.read(principal(), run)
    frames = RagflowFrames(reading, RunService.chat_of(run) or "")
    after = position(request.headers.get("Last-Event-ID"), reading)
    return stream(reading, frames, after=after, silence=chatkeep().settings.stream.keep_alive)


def _cancel(run: Run) -> Response:
    chatkeep().completions.cancel(principal(), run)
    return success({"id": run.id, "cancel_requested": True})


def _own_session(chat_id: str, session_id: str) -> None:
    ConversationService.get_in_chat(principal(), DialogService.get_by_id(principal(), chat_id).id, session_id)


def _shown(run: Run) -> dict[str, Any]:
    """A run without its owner's address and without the provider's words."""
    return {
        "id": run.id, "session_id": run.conversation_id, "kind": run.kind, "message_id": run.turn_id,
        "status": run.status, "outcome": run.outcome, "finish_reason": run.finish_reason,
        "error_code": run.error_code, "usage": run.usage, "cancel_requested": bool(run.cancel_requested),
        "started_at": _iso(run.started_at), "ended_at": _iso(run.ended_at),
    }


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
