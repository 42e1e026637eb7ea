"""Questions over RAGFlow's two completion paths: checks in RAGFlow's order, then one use case."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, NotRequired

from flask import Blueprint, Response, g, request
from pydantic import Field, with_config
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import Flag, Name, flag, limits, read_object, shown, text_field
from api.described import EXAMPLE_IDS, described
from api.question_fields import (
    ROLES,
    Content,
    Idempotent,
    MessageId,
    Pipeline,
    checked_message,
    conflict_policy,
    find_model,
    idempotency_key,
    pipeline_options,
    refuse_foreign_session,
    refuse_too_many,
)
from api.ragflow_frames import Answer, AnswerEvent, FailureEvent, RagflowFrames, failure_frame, plain
from api.responses import Refusal, envelope, success
from api.sse import stream
from db.models import Dialog
from services.completions import Ask
from services.conversation_service import ConversationService
from services.dialog_service import DialogService
from services.errors import ChatkeepError, InvalidArgument, InvalidData, TooLarge
from services.events import FinishReason

blueprint = Blueprint("completions", __name__, url_prefix="/api/v1")
blueprint.before_request(authenticate)

# What belongs to the request itself; everything else is an option of the pipeline.
REQUEST_KEYS = {
    "messages", "question", "files", "chat_id", "session_id", "conversation_id", "stream", "llm_id", "legacy",
    "pass_all_history_messages", "pass_all_history", "store_history_messages", "store_history", "on_conflict",
    "user_id", "dialog",
}


@with_config(extra="allow")
class GivenMessage(TypedDict):
    """A message of the client's; other keys of at most 16 KB stay on a question."""

    role: Annotated[str, Field(json_schema_extra={"enum": [*ROLES]})]
    content: Content
    id: NotRequired[MessageId | None]


@with_config(extra="allow", json_schema_extra={"anyOf": [{"required": ["messages"]}, {"required": ["question"]}]})
class Question(Pipeline, total=False):
    """A question, by itself or as the last of `messages`; those before it count with `pass_all_history_messages`."""

    messages: Annotated[list[GivenMessage], Field(min_length=1, json_schema_extra={"maxItems": "limits.messages"})]
    question: Content
    files: Any
    chat_id: Name | None
    conversation_id: Annotated[Name | None, Field(description="an older name of `session_id`")]
    user_id: Annotated[Name | None, Field(description="of the session that this call creates")]
    llm_id: str | None
    stream: Annotated[Flag, Field(description="true where absent")]
    legacy: Annotated[Flag, Field(description="whether each frame repeats the whole text, as older clients want it")]
    pass_all_history_messages: Annotated[Flag, Field(description="yes, no, on and off count too")]
    pass_all_history: Annotated[Flag, Field(description="another name of `pass_all_history_messages`")]
    store_history_messages: Annotated[Flag, Field(description="false needs `pass_all_history_messages`")]
    store_history: Annotated[Flag, Field(description="another name of `store_history_messages`")]


@with_config(extra="allow")
class Unanswered(TypedDict):
    """What stands in an answer's place; a failed answer has the keys of a stream's last event."""

    answer: str
    reference: list[Any]
    session_id: str | None
    id: str | None


class NoAnswer(Refusal):
    """A refusal that clients can read as an answer."""

    data: Unanswered | None  # type: ignore[misc]


_described = described(
    Answer, body=Question, headers=Idempotent, frame=AnswerEvent | FailureEvent, refusal=NoAnswer, statuses=(409,),
    example={
        "chat_id": EXAMPLE_IDS["chat_id"], "session_id": EXAMPLE_IDS["session_id"], "stream": False,
        "messages": [{"role": "user", "content": "How do I reset my password?"}],
    },
)


@blueprint.post("/chat/completions")
@_described
def complete() -> Response:
    """Ask a question; a chat's id in the body says which chat answers and keeps it."""
    return _complete("")


@blueprint.post("/chats/<chat_id>/completions")
@_described
def complete_in_chat(chat_id: str) -> Response:
    """The same with the chat in the path; one in the body wins."""
    return _complete(chat_id)


def _complete(path_chat_id: str) -> Response:
    body = read_object(limits().upload_bytes)
    length = max(len(request.get_data()), request.content_length or 0)
    chat_id = text_field(body, "chat_id") or path_chat_id
    session_id = text_field(body, "session_id") or text_field(body, "conversation_id")
    g.named = {"session_id": session_id, "id": None}
    pass_all = flag(body, "pass_all_history_messages", "pass_all_history", default=False, words=True)
    if not pass_all and length > limits().body_bytes:
        raise TooLarge(f"the body is larger than {limits().body_bytes} bytes")
    messages = _messages(body)
    streams = flag(body, "stream", default=True)
    stores = flag(body, "store_history_messages", "store_history", default=True, words=True)
    legacy = flag(body, "legacy", default=False)
    if not stores and not pass_all:
        raise InvalidData("`pass_all_history_messages` must be true when `store_history_messages` is false.")
    if session_id and not chat_id:
        raise InvalidData("`chat_id` is required when `session_id` is provided.")
    dialog = DialogService.get_by_id(principal(), chat_id) if chat_id else None
    if dialog is not None and session_id:
        refuse_foreign_session(dialog, session_id)
    ask = Ask(
        question=messages[-1], dialog=dialog, session_id=session_id, model=find_model(_llm_id(body), dialog),
        history=messages[:-1] if pass_all or dialog is None else None,
        options=pipeline_options(body, REQUEST_KEYS),
        on_conflict=conflict_policy(body), idempotency_key=idempotency_key(),
    )
    if dialog is None or not stores:
        ask = replace(ask, session_id=None)
    elif not session_id:
        with _new_session(dialog, body) as session_id:
            return _answer(replace(ask, session_id=session_id), dialog, streams=streams, legacy=legacy)
    return _answer(ask, dialog, streams=streams, legacy=legacy)


def _answer(ask: Ask, dialog: Dialog | None, *, streams: bool, legacy: bool) -> Response:
    g.named = {"session_id": ask.session_id, "id": ask.question.get("id")}
    reading = chatkeep().completions.ask(principal(), ask)
    chat_id = dialog.id if dialog else ""
    if streams:
        frames = RagflowFrames(reading, chat_id, legacy=legacy)
        return stream(reading, frames, silence=chatkeep().settings.stream.keep_alive)
    last, data = plain(reading, chat_id)
    if last.finish_reason is FinishReason.ERROR:
        failed = failure_frame(last, {name: data[name] for name in ("id", "session_id", "run_id")})
        reply = envelope(102, str(last.error_message), failed["data"])
    else:
        reply = success(data)
    reply.headers["X-Chatkeep-Run"] = reading.run_id
    return reply


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The request's messages, checked: the last one is the question, those before it are its history."""
    given = body.get("messages")
    if given is None:
        if body.get("question") is None:
            raise InvalidArgument("required argument are missing: messages")
        files = {"files": body["files"]} if body.get("files") else {}
        given = [{"role": "user", "content": body["question"]} | files]
    if not isinstance(given, list) or not given:
        raise InvalidArgument("`messages` must be a non-empty list.")
    refuse_too_many(given)
    if any(not isinstance(message, dict) for message in given):
        raise InvalidArgument("Every item in `messages` must be an object.")
    if any("role" not in message or "content" not in message for message in given):
        raise InvalidArgument("Every item in `messages` must include `role` and `content`.")
    spoken = [message["role"] for message in given if message["role"] != "system"]
    if all(role == "assistant" for role in spoken):
        raise InvalidArgument("`messages` must contain a user message.")
    if spoken[-1] != "user":
        raise InvalidArgument("The last message must be from user.")
    checked = [checked_message(message) for message in given]
    checked.sort(key=lambda message: message["role"] != "system")
    _refuse_repeated_ids(checked)
    return checked


def _refuse_repeated_ids(messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for message in messages:
        id = message.get("id") if message["role"] == "user" else None
        if id in seen:
            raise InvalidData(f"message id {id!r} stands for two questions of this request")
        if id:
            seen.add(id)


def _llm_id(body: dict[str, Any]) -> str:
    wanted = body.get("llm_id") or ""
    if not isinstance(wanted, str):
        raise InvalidArgument(f"`llm_id` must be a text, not {shown(wanted)}")
    return wanted


@contextmanager
def _new_session(dialog: Dialog, body: dict[str, Any]) -> Iterator[str]:
    """A session for this question; a refused call leaves nothing, not even that."""
    session = ConversationService.create(principal(), dialog, user_id=text_field(body, "user_id"))
    try:
        yield str(session.id)
    except ChatkeepError:
        ConversationService.delete(principal(), dialog.id, [session.id])
        raise
