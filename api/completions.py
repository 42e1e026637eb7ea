"""Questions over RAGFlow's two completion paths: checks in RAGFlow's order, then one use case."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, g, request

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import flag, limits, read_object, text_field
from api.ragflow_frames import RagflowFrames, failure_frame, plain
from api.responses import dumps, envelope, success
from api.sse import stream
from db.models import Dialog
from services.completions import Ask, OnConflict
from services.conversation_service import ConversationService
from services.dialog_service import DialogService
from services.errors import ChatkeepError, InvalidArgument, InvalidData, NotFound, TooLarge
from services.events import FinishReason
from services.rag.chat_models import ChatModel
from services.rag.prompts import SAMPLING

blueprint = Blueprint("completions", __name__, url_prefix="/api/v1")
blueprint.before_request(authenticate)

# What belongs to the request itself; everything else is an option of the pipeline.
REQUEST_KEYS = {
    "messages", "question", "files", "chat_id", "session_id", "conversation_id", "stream", "llm_id", "legacy",
    "pass_all_history_messages", "pass_all_history", "store_history_messages", "store_history", "on_conflict",
    "user_id", "dialog",
}
# Keys of a message that are ours: a client's are dropped, but for those it may well give.
OUR_KEYS = {
    "seq", "uid", "created_at", "finish_reason", "error_code", "error_message", "status", "run_id",
    "tool_calls", "tool_call_id", "tool_name", "encrypted_value", "activity_type", "step", "subagent_run_id",
    "hidden", "token_count", "thumbup", "feedback",
}


@blueprint.post("/chat/completions")
def complete() -> Response:
    """Ask a question; a chat's id in the body says which chat answers and keeps it."""
    return _complete("")


@blueprint.post("/chats/<chat_id>/completions")
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
        _session_of(dialog, session_id)
    ask = Ask(
        question=messages[-1], dialog=dialog, session_id=session_id, model=_model(body, dialog),
        history=messages[:-1] if pass_all or dialog is None else None,
        options=_options(body),
        on_conflict=_policy(body), idempotency_key=_idempotency_key(),
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
    if len(given) > limits().messages:
        raise InvalidArgument(f"`messages` holds {len(given)} messages; at most {limits().messages} are allowed")
    if any(not isinstance(message, dict) for message in given):
        raise InvalidArgument("Every item in `messages` must be an object.")
    if any("role" not in message or "content" not in message for message in given):
        raise InvalidArgument("Every item in `messages` must include `role` and `content`.")
    spoken = [message["role"] for message in given if message["role"] != "system"]
    if all(role == "assistant" for role in spoken):
        raise InvalidArgument("`messages` must contain a user message.")
    if spoken[-1] != "user":
        raise InvalidArgument("The last message must be from user.")
    checked = [_message(message) for message in given]
    checked.sort(key=lambda message: message["role"] != "system")
    _refuse_repeated_ids(checked)
    return checked


def _message(message: dict[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role not in ("user", "assistant", "system"):
        raise InvalidArgument(f"a message's `role` must be user, assistant or system, not {dumps(role).decode()[:80]}")
    if not isinstance(content, str):
        raise InvalidArgument(f"a message's `content` must be a text, not {dumps(content).decode()[:80]}")
    if len(content.encode()) > limits().message_bytes:
        raise InvalidArgument(
            f"a message's `content` has {len(content.encode())} bytes; at most {limits().message_bytes} are allowed"
        )
    kept = {key: value for key, value in message.items() if key not in OUR_KEYS and key != "id"}
    extra = len(dumps({key: value for key, value in kept.items() if key not in ("role", "content")}))
    if extra > limits().extra_bytes:
        raise InvalidArgument(
            f"a message's other keys have {extra} bytes of JSON; at most {limits().extra_bytes} are allowed"
        )
    id = text_field(message, "id")
    return kept | ({"id": id} if id else {})


def _refuse_repeated_ids(messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for message in messages:
        id = message.get("id") if message["role"] == "user" else None
        if id in seen:
            raise InvalidData(f"message id {id!r} stands for two questions of this request")
        if id:
            seen.add(id)


def _session_of(dialog: Dialog, session_id: str) -> None:
    session = ConversationService.get_by_id(principal(), session_id)
    if session.dialog_id != dialog.id:
        raise NotFound("Session does not belong to this chat!")


def _model(body: dict[str, Any], dialog: Dialog | None) -> ChatModel:
    models = chatkeep().models
    wanted = body.get("llm_id") or ""
    if not isinstance(wanted, str):
        raise InvalidArgument(f"`llm_id` must be a text, not {dumps(wanted).decode()[:80]}")
    model = models.find(wanted) if wanted else models.find(dialog.llm_id if dialog else "")
    if model is None:
        raise InvalidData(f"Cannot use specified model {wanted or (dialog.llm_id if dialog else '')}.")
    return model


def _options(body: dict[str, Any]) -> dict[str, Any]:
    """What the pipeline gets beside the question. Raises InvalidArgument for a sampling value that is no number."""
    for name in SAMPLING:
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidArgument(f"`{name}` must be a number, not {dumps(value).decode()[:80]}")
    if not _names_documents(body.get("doc_ids")):
        raise InvalidArgument(
            f"`doc_ids` must be a list of ids, or a text with commas, not {dumps(body['doc_ids']).decode()[:80]}"
        )
    return {key: value for key, value in body.items() if key not in REQUEST_KEYS}


def _names_documents(value: Any) -> bool:
    return value is None or isinstance(value, str) or (
        isinstance(value, list) and len(value) <= limits().ids and all(isinstance(id, str) for id in value)
    )


def _policy(body: dict[str, Any]) -> OnConflict:
    word = body.get("on_conflict")
    if word in (None, ""):
        return OnConflict.QUEUE
    if not isinstance(word, str) or word not in list(OnConflict):
        raise InvalidArgument(f"`on_conflict` must be queue, reject or interrupt, not {dumps(word).decode()[:80]}")
    return OnConflict(word)


def _idempotency_key() -> str | None:
    return text_field({"Idempotency-Key": request.headers.get("Idempotency-Key")}, "Idempotency-Key")


@contextmanager
def _new_session(dialog: Dialog, body: dict[str, Any]) -> Iterator[str]:
    """A session for this question; a refused call leaves nothing, not even that."""
    session = ConversationService.create(principal(), dialog, user_id=text_field(body, "user_id"))
    try:
        yield str(session.id)
    except ChatkeepError:
        ConversationService.delete(principal(), dialog.id, [session.id])
        raise
