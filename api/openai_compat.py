"""OpenAI's chat API: every chat is a model. RAGFlow's paths of it name the chat; ours take it as `model`.

Stateless unless the request names a session. The checks of a body are the same on all paths; what a fault of it
looks like isn't: RAGFlow's envelope on RAGFlow's paths, OpenAI's error on `/v1`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

from flask import Blueprint, Response
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import limits, read_object
from api.described import EXAMPLE_IDS, described
from api.openai_errors import failed_answer, openai_refusal
from api.openai_fields import Completion, CompletionBody, metadata_options, read_completion
from api.openai_frames import ChatCompletion, CompletionEvent, Form, OpenAIFrames, has_failed
from api.question_fields import Idempotent, find_model, refuse_foreign_session
from api.responses import dumps
from api.sse import stream
from db.models import Dialog
from services.completions import Ask
from services.dialog_service import DialogService
from services.errors import InvalidArgument, InvalidData, NotFound, NotOwned
from services.rag.chat_models import ChatModel
from services.runs.reading import Reading

ragflow_blueprint = Blueprint("openai_chats", __name__, url_prefix="/api/v1")
ragflow_blueprint.before_request(authenticate)
blueprint = Blueprint("openai", __name__, url_prefix="/v1")
blueprint.before_request(authenticate)

PLACEHOLDER = "model"  # RAGFlow's word for the chat's own model

FAILURES = (400, 409, 429, 500, 502, 503, 504)  # of an answer: openai_errors.py
EXAMPLE: dict[str, Any] = {
    "model": PLACEHOLDER, "messages": [{"role": "user", "content": "How do I reset my password?"}], "stream": False,
}


class Model(TypedDict):
    """A chat as a model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    name: str


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[Model]


_completing = partial(
    described, ChatCompletion, body=CompletionBody, headers=Idempotent, frame=CompletionEvent
)


@ragflow_blueprint.post("/openai/<chat_id>/chat/completions")
@ragflow_blueprint.post("/chats_openai/<chat_id>/chat/completions")
@_completing(example=EXAMPLE, statuses=FAILURES)
def complete_in_chat(chat_id: str) -> Response:
    """Ask a chat. `model` is the text "model", or names another model of this server to answer with."""
    asked = read_completion(read_object(limits().upload_bytes))
    dialog = _own_chat(chat_id)
    _refuse_foreign_session(asked, dialog)
    model, echo = _model_of(asked.model, dialog)
    reading = _ask(asked, dialog, model)
    form = Form(
        f"chatcmpl-{chat_id}", echo, asked.prompt, asked.reference, asked.session_id, repeats_role=True
    )
    return _answer(asked, reading, form)


@ragflow_blueprint.get("/openai/<chat_id>/models")
@ragflow_blueprint.get("/chats_openai/<chat_id>/models")
@described(ModelList)
def list_model_of_chat(chat_id: str) -> Response:
    """The chat as the one model of its path."""
    return _json(_list([_own_chat(chat_id)]))


@blueprint.post("/chat/completions")
@_completing(example=EXAMPLE | {"model": EXAMPLE_IDS["chat_id"]}, statuses=(404, *FAILURES))
def complete() -> Response:
    """Ask the chat whose id or name `model` is."""
    asked = read_completion(read_object(limits().upload_bytes))
    dialog = _chat_as_model(asked.model)
    _refuse_foreign_session(asked, dialog)
    reading = _ask(asked, dialog, find_model("", dialog))
    form = Form(f"chatcmpl-{reading.run_id}", dialog.id, asked.prompt, asked.reference, asked.session_id)
    return _answer(asked, reading, form)


@blueprint.get("/models")
@described(ModelList)
def list_models() -> Response:
    """The caller's chats as models, newest first."""
    return _json(_list(DialogService.names(principal())))


@blueprint.get("/models/<path:chat_id>")
@described(Model, statuses=(404,))
def get_model(chat_id: str) -> Response:
    """One chat as a model, by its id or its name."""
    return _json(_shown(_chat_as_model(chat_id)))


def _own_chat(chat_id: str) -> Dialog:
    try:
        return DialogService.get_by_id(principal(), chat_id)
    except NotOwned:
        raise InvalidData(f"You don't own the chat {chat_id}") from None


def _chat_as_model(id_or_name: str) -> Dialog:
    dialog = DialogService.find(principal(), id_or_name)
    if dialog is None:
        raise NotFound(
            f"The model `{id_or_name}` does not exist. A model is a chat's id or its name; GET /v1/models lists them.",
            code="model_not_found", param="model",
        )
    return dialog


def _refuse_foreign_session(asked: Completion, dialog: Dialog) -> None:
    if asked.session_id:
        refuse_foreign_session(dialog, asked.session_id)


def _model_of(wanted: str, dialog: Dialog) -> tuple[ChatModel, str]:
    """What answers, and what the answer calls it. Raises InvalidArgument, InvalidData."""
    if wanted in (PLACEHOLDER, dialog.id, dialog.name):
        return find_model("", dialog), dialog.llm_id or PLACEHOLDER
    if not wanted:
        raise InvalidData("Cannot use specified model .")
    model = chatkeep().models.find(wanted)
    if model is None:
        raise InvalidArgument(f"`llm_id` {wanted} doesn't exist")
    return model, wanted


def _ask(asked: Completion, dialog: Dialog, model: ChatModel) -> Reading:
    return chatkeep().completions.ask(principal(), Ask(
        question=asked.question, dialog=dialog, session_id=asked.session_id, model=model, history=asked.history,
        options=asked.options | metadata_options(asked), kind="openai",
        on_conflict=asked.on_conflict, idempotency_key=asked.idempotency_key,
    ))


def _answer(asked: Completion, reading: Reading, form: Form) -> Response:
    frames = OpenAIFrames(reading, form)
    if asked.streams:
        return stream(reading, frames, silence=chatkeep().settings.stream.keep_alive, with_ids=False)
    end = frames.read()
    if has_failed(end):
        status, code = failed_answer(end.error_code)
        reply = openai_refusal(status, end.error_message or "", code=code)
        if asked.session_id:  # the clients ask again by themselves, and this question is stored
            reply.headers["X-Should-Retry"] = "false"
    else:
        reply = _json(frames.completion(end))
    reply.headers["X-Chatkeep-Run"] = reading.run_id
    return reply


def _list(dialogs: Iterable[Dialog]) -> dict[str, object]:
    return {"object": "list", "data": [_shown(dialog) for dialog in dialogs]}


def _shown(dialog: Dialog) -> dict[str, object]:
    """A chat as a model; its name is for people."""
    return {
        "id": dialog.id, "object": "model", "created": dialog.create_time // 1000, "owned_by": "chatkeep",
        "name": dialog.name,
    }


def _json(value: dict[str, object]) -> Response:
    return Response(dumps(value), mimetype="application/json")
