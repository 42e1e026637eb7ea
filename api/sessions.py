"""Sessions of a chat, and what can be done with their messages."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired

from flask import Blueprint, Response, g, request
from pydantic import Field, with_config
from typing_extensions import TypedDict

from api.auth import authenticate, principal
from api.body import VISIBLE, Deletion, Name, descending, ids_of, paging, read_object, text_field
from api.chats import Listing, order_field
from api.described import EXAMPLE_IDS, described
from api.reports import Report, report
from api.responses import LightSession, Session, blocks, build_session_response, dumps, session_pieces, success
from db.models import Dialog, DocumentRow
from services.conversation_service import ConversationService, clip
from services.dialog_service import DialogService
from services.errors import InvalidArgument, InvalidData, NotFound

blueprint = Blueprint("sessions", __name__, url_prefix="/api/v1/chats/<chat_id>/sessions")
blueprint.before_request(authenticate)

READ_ONLY = {"id", "dialog_id", "chat_id", "user_id", "create_time", "create_date", "update_time", "update_date"}
FEEDBACK_BYTES = 16_384

SessionName = Annotated[str, Field(pattern=VISIBLE, description="cut to 255 characters")]


class NewSession(TypedDict, total=False):
    name: SessionName
    user_id: Annotated[Name | None, Field(description="whose session it is, in the caller's words")]


@with_config(extra="forbid")
class SessionChange(TypedDict, total=False):
    """A new name; the other keys are read by nobody."""

    name: SessionName | None
    id: Any
    dialog_id: Any
    chat_id: Any
    user_id: Any
    create_time: Any
    create_date: Any
    update_time: Any
    update_date: Any


class SessionList(Listing, total=False):
    user_id: str
    light: Annotated[bool, Field(description="whether messages are left out")]


class Vote(TypedDict):
    """`feedback` stays with a vote down."""

    thumbup: bool
    feedback: NotRequired[Annotated[Any, Field(description=f"at most {FEEDBACK_BYTES} bytes of JSON")]]
    set: NotRequired[Annotated[Any, Field(description="read where `thumbup` is absent")]]


class SessionOfChat(Session):
    avatar: str | None


@blueprint.url_value_preprocessor
def _take_chat_id(endpoint: str | None, values: dict[str, Any] | None) -> None:
    g.chat_id = (values or {}).pop("chat_id", "")


@blueprint.before_request
def _own_the_chat() -> None:
    g.dialog = DialogService.get_by_id(principal(), g.chat_id)


def _dialog() -> Dialog:
    dialog: Dialog = g.dialog
    return dialog


@blueprint.post("")
@described(Session, body=NewSession, example={"name": "Password trouble", "user_id": "user-7"})
def create() -> Response:
    """Create a session; it begins with the chat's prologue."""
    body = read_object()
    name = _name(body["name"]) if "name" in body else None
    session = ConversationService.create(principal(), _dialog(), name, text_field(body, "user_id"))
    return success(_shown(session))


@blueprint.get("")
@described(list[Session | LightSession], query=SessionList)
def list_sessions() -> Response:
    """One page of the chat's sessions, with their messages unless `light=true`. No total, as in RAGFlow."""
    page, size = paging()
    rows = ConversationService.get_list(
        principal(), _dialog().id, page, size, order_field(), descending(), request.args.get("id", ""),
        request.args.get("name", ""), request.args.get("user_id", ""),
    )
    if request.args.get("light", "").lower() == "true":
        return success([build_session_response(row) for row in rows])
    return Response(_started(blocks(_listed(rows))), mimetype="application/json")


@blueprint.get("/<session_id>")
@described(SessionOfChat)
def get(session_id: str) -> Response:
    """One session whole."""
    session = ConversationService.get_by_id(principal(), session_id)
    if session.dialog_id != _dialog().id:
        raise NotFound("Session does not belong to this chat!")
    return success(_shown(session) | {"avatar": _dialog().icon})


@blueprint.patch("/<session_id>")
@blueprint.put("/<session_id>")
@described(Session, body=SessionChange, example={"name": "Reset by mail"})
def update(session_id: str) -> Response:
    """Rename a session. Its messages change by questions and edits only."""
    ConversationService.get_in_chat(principal(), _dialog().id, session_id)
    body = read_object()
    if "message" in body or "messages" in body:
        raise InvalidData("`messages` cannot be changed")
    if "reference" in body:
        raise InvalidData("`reference` cannot be changed")
    unknown = sorted(set(body) - READ_ONLY - {"name"})
    if unknown:
        raise InvalidArgument(f"a session has no field `{unknown[0]}` that can be changed; `name` can")
    fields = {}
    if "name" in body:
        fields = {"name": None if body["name"] is None else _name(body["name"]), "name_source": "user"}
    return success(_shown(ConversationService.update_by_id(principal(), session_id, fields)))


@blueprint.delete("")
@described(Report | Literal[True], body=Deletion, example={"ids": [EXAMPLE_IDS["session_id"]]})
def delete_many() -> Response:
    """Erase sessions by id, or all of the chat's with `delete_all` true."""
    body = read_object()
    ids = ids_of(body)
    chat_id = _dialog().id
    if ids:
        return report(
            ids, lambda wanted: ConversationService.delete(principal(), chat_id, wanted), "session",
            "The chat doesn't own the session {id}", done=lambda count: True,
        )
    if body.get("delete_all") is True:
        return success(True if ConversationService.delete_all(principal(), chat_id) else {})
    return success({})


@blueprint.delete("/<session_id>/messages/<path:message_id>")
@described(Session, statuses=(409,))
def delete_turn(session_id: str, message_id: str) -> Response:
    """Remove a question with its answer and their reference; an unknown id changes nothing."""
    session = ConversationService.get_in_chat(principal(), _dialog().id, session_id)
    ConversationService.delete_turn(principal(), session.id, message_id)
    return success(_shown(ConversationService.get_by_id(principal(), session_id)))


@blueprint.put("/<session_id>/messages/<path:message_id>/feedback")
@described(Session, body=Vote, example={"thumbup": False, "feedback": "too short"}, statuses=(409,))
def give_feedback(session_id: str, message_id: str) -> Response:
    """Vote on an answer: `thumbup` (older clients: `set`), and a text with a vote down."""
    session = ConversationService.get_in_chat(principal(), _dialog().id, session_id)
    body = read_object()
    thumbup = body["thumbup"] if "thumbup" in body else body.get("set")
    if not isinstance(thumbup, bool):
        raise InvalidData("thumbup must be a boolean")
    ConversationService.give_feedback(principal(), session.id, message_id, thumbup, _feedback(body))
    return success(_shown(ConversationService.get_by_id(principal(), session_id)))


def _feedback(body: dict[str, Any]) -> Any:
    feedback = body.get("feedback")
    if feedback is not None and len(dumps(feedback)) > FEEDBACK_BYTES:
        raise InvalidArgument(f"`feedback` has {len(dumps(feedback))} bytes; at most {FEEDBACK_BYTES} are allowed")
    return feedback


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidData("`name` can not be empty")
    return clip(value)


def _shown(session: DocumentRow) -> dict[str, Any]:
    return build_session_response(session, ConversationService.text(principal(), session.id))


def _listed(rows: list[DocumentRow]) -> Iterator[bytes | memoryview]:
    """The list's JSON, batch by batch: no more than one batch of documents is held at once."""
    separator = b'{"code":0,"message":"success","data":['
    for batch in ConversationService.texts(principal(), rows):
        for row, document in batch:
            yield separator
            yield from session_pieces(row, document)
            separator = b","
    yield (separator if separator != b"," else b"") + b"]}"


def _started(body: Iterator[bytes]) -> Iterator[bytes]:
    """The same, its first part made already: an error there still becomes an answer of its own."""
    first = next(body)
    return _chained(first, body)


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
