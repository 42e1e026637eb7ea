"""What a question's body may hold, on every route that asks one."""

import re
from typing import Annotated, Any, Literal, NotRequired

from flask import request
from pydantic import Field, with_config
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import principal
from api.body import IdList, Name, limits, shown, text_field
from api.responses import dumps
from db.models import Dialog
from services.completions import OnConflict
from services.conversation_service import ConversationService
from services.errors import InvalidArgument, InvalidData, NotFound
from services.knowledge.metadata import OPERATORS, read_filter
from services.rag.chat_models import ChatModel
from services.rag.prompts import SAMPLING

# Keys of a message that are ours: a client's are dropped, but for those it may well give.
OUR_KEYS = {
    "seq", "uid", "created_at", "finish_reason", "error_code", "error_message", "status", "run_id",
    "tool_calls", "tool_call_id", "tool_name", "encrypted_value", "activity_type", "step", "subagent_run_id",
    "hidden", "token_count", "thumbup", "feedback",
}
ROLES = ("user", "assistant", "system")
# An id of a client's own stands in paths later, where clients and proxies resolve `.` and `..` and join slashes.
_SIGN, _DOTLESS = r"[^/\u0000-\u001f\u007f-\u009f]", r"[^/.\u0000-\u001f\u007f-\u009f]"
_SEGMENT = rf"(?:{_DOTLESS}{_SIGN}*|\.{_DOTLESS}{_SIGN}*|\.\.{_SIGN}+)"
MESSAGE_ID = rf"{_SEGMENT}(?:/{_SEGMENT})*"

Content = Annotated[str, Field(
    json_schema_extra={"maxLength": "limits.message_bytes"}, description="the bound counts bytes of UTF-8"
)]
MessageId = Annotated[Name, Field(
    json_schema_extra={"pattern": f"^{MESSAGE_ID}$"}, description="of the question's turn; made where it is absent"
)]
Idempotent = TypedDict("Idempotent", {"Idempotency-Key": NotRequired[Name]})


class Condition(TypedDict):
    """A comparison with a document's `meta_fields`."""

    name: Annotated[str, Field(min_length=1)]
    comparison_operator: NotRequired[Annotated[str, Field(json_schema_extra={"enum": [*OPERATORS]})]]
    value: NotRequired[Any]


class Filter(TypedDict, total=False):
    """Which documents are searched."""

    logic: Literal["and", "or"]
    conditions: list[Condition]


@with_config(extra="allow")
class Pipeline(TypedDict, total=False):
    """What a question asks of the pipeline. Other keys fill the places of the chat's system prompt."""

    session_id: Name | None
    temperature: float | None
    top_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    max_tokens: float | None
    quote: Any
    doc_ids: Annotated[IdList | str, Field(description="ids in a list, or in a text with commas")]
    on_conflict: Annotated[
        OnConflict | Literal[""] | None,
        Field(description="what happens where the session answers another question; queue if absent"),
    ]


def refuse_too_many(messages: list[Any]) -> None:
    """Raise InvalidArgument for more messages than a call may hold."""
    if len(messages) > limits().messages:
        raise InvalidArgument(f"`messages` holds {len(messages)} messages; at most {limits().messages} are allowed")


def checked_message(message: dict[str, Any]) -> dict[str, Any]:
    """A client's message without the keys that are ours. Raises InvalidArgument."""
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise InvalidArgument(f"a message's `role` must be user, assistant or system, not {shown(role)}")
    if not isinstance(content, str):
        raise InvalidArgument(f"a message's `content` must be a text, not {shown(content)}")
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
    if id and not re.fullmatch(MESSAGE_ID, id):
        raise InvalidArgument(
            f"a message's `id` stands in paths: it has no control characters, and between slashes neither nothing "
            f"nor `.` or `..`, unlike {shown(id)}"
        )
    return kept | ({"id": id} if id else {})


def refuse_foreign_session(dialog: Dialog, session_id: str) -> None:
    """Raise NotFound unless the session is the caller's own and of this chat."""
    session = ConversationService.get_by_id(principal(), session_id)
    if session.dialog_id != dialog.id:
        raise NotFound("Session does not belong to this chat!")


def find_model(wanted: str, dialog: Dialog | None) -> ChatModel:
    """The model of this name, else the chat's, else the default. Raises InvalidData."""
    name = wanted or (dialog.llm_id if dialog else "")
    model = chatkeep().models.find(name)
    if model is None:
        raise InvalidData(f"Cannot use specified model {name}.")
    return model


def pipeline_options(body: dict[str, Any], not_options: set[str]) -> dict[str, Any]:
    """What the pipeline gets beside the question. Raises InvalidArgument for a sampling value that is no number,
    and for a filter that is none."""
    for name in SAMPLING:
        refuse_unless_number(body, name)
    if not _names_documents(body.get("doc_ids")):
        raise InvalidArgument(
            f"`doc_ids` must be a list of ids, or a text with commas, not {shown(body['doc_ids'])}"
        )
    if "metadata_condition" not in not_options:
        read_filter(body.get("metadata_condition"))
    return {
        key: value for key, value in body.items()
        if key not in not_options and not (key in SAMPLING and value is None)
    }


def refuse_unless_number(body: dict[str, Any], name: str) -> None:
    """Raise InvalidArgument where the field is there and no number."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidArgument(f"`{name}` must be a number, not {shown(value)}")


def _names_documents(value: Any) -> bool:
    return value is None or isinstance(value, str) or (
        isinstance(value, list) and len(value) <= limits().ids and all(isinstance(id, str) for id in value)
    )


def conflict_policy(body: dict[str, Any]) -> OnConflict:
    """What happens where the session answers another question already. Raises InvalidArgument."""
    word = body.get("on_conflict")
    if word in (None, ""):
        return OnConflict.QUEUE
    if not isinstance(word, str) or word not in list(OnConflict):
        raise InvalidArgument(f"`on_conflict` must be queue, reject or interrupt, not {shown(word)}")
    return OnConflict(word)


def idempotency_key() -> str | None:
    """The request's `Idempotency-Key`. Raises InvalidArgument."""
    return text_field({"Idempotency-Key": request.headers.get("Idempotency-Key")}, "Idempotency-Key")
