"""Questions that somebody may ask next, over RAGFlow's route and its older name."""

from typing import Any, NotRequired

from flask import Blueprint, Response
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import IdList, Name, ids_of, limits, read_object, text_field
from api.described import described
from api.question_fields import Content, find_model
from api.responses import success
from services.dialog_service import DialogService
from services.errors import InvalidArgument
from services.rag.recommendation import related_questions

blueprint = Blueprint("recommendations", __name__, url_prefix="/api/v1")
blueprint.before_request(authenticate)


class Asked(TypedDict):
    question: Content
    chat_id: NotRequired[Name | None]
    dataset_ids: NotRequired[IdList]
    search_id: NotRequired[Any]


@blueprint.post("/chat/recommendation")
@blueprint.post("/sessions/related_questions")
@described(list[str], body=Asked, example={"question": "How do I reset my password?"})
def recommend() -> Response:
    """Questions near `question`, by the model of the chat if `chat_id` names one, else by the default model.

    `dataset_ids` bounds where the built-in model looks; `search_id` and other keys are ignored.
    """
    body = read_object()
    question = _question(body)
    chat_id = text_field(body, "chat_id")
    dialog = DialogService.get_by_id(principal(), chat_id) if chat_id else None
    model = find_model("", dialog)
    wanted = ids_of(body, "dataset_ids") or (dialog.kb_ids if dialog else None)
    chatkeep().workers.refuse_when_draining()
    return success(related_questions(model, principal(), question, wanted))


def _question(body: dict[str, Any]) -> str:
    if "question" not in body:
        raise InvalidArgument("required argument are missing: question; ")
    question = body["question"]
    if not isinstance(question, str):
        raise InvalidArgument("`question` must be a text")
    if len(question.encode()) > limits().message_bytes:
        raise InvalidArgument(
            f"`question` has {len(question.encode())} bytes; at most {limits().message_bytes} are allowed"
        )
    return question
