"""Chats over RAGFlow's API; what their bodies may hold is in chat_fields."""

from typing import Annotated, Any, Literal

from flask import Blueprint, Response, request
from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import Paging, descending, ids_of, paging, read_object
from api.chat_fields import (
    ChatChange,
    ChatDeletion,
    NewChat,
    chat_name,
    checked,
    refuse_tenant,
    with_parameters,
)
from api.described import EXAMPLE_IDS, described
from api.ignored import ignored, warned
from api.reports import Report, report
from api.responses import Advised, Chat, build_chat_response, success
from db.models import Dialog
from services.chat_advice import warnings
from services.dialog_service import (
    DEFAULT_EMPTY_RESPONSE,
    DEFAULT_PROLOGUE,
    DEFAULT_SYSTEM,
    ORDER_FIELDS,
    DialogService,
)
from services.errors import InvalidArgument, InvalidData, NotOwned
from services.models import DEFAULT, model_id

blueprint = Blueprint("chats", __name__, url_prefix="/api/v1/chats")
blueprint.before_request(authenticate)

DEFAULTS: dict[str, Any] = {
    "description": "A helpful Assistant", "icon": "", "top_n": 6, "top_k": 1024, "similarity_threshold": 0.1,
    "vector_similarity_weight": 0.3, "rerank_id": "", "llm_setting": {}, "dataset_ids": [],
}
PROMPT_DEFAULTS: dict[str, Any] = {
    "system": DEFAULT_SYSTEM, "prologue": DEFAULT_PROLOGUE, "empty_response": DEFAULT_EMPTY_RESPONSE,
    "quote": True, "tts": False, "refine_multiturn": True,
}
IGNORED = ("kb_ids", "status", "avatar", "llm", "prompt")  # the last three: how RAGFlow's clients up to 0.24 ask
OWNERS = 100
EXAMPLE: dict[str, Any] = {
    "name": "Support", "dataset_ids": [EXAMPLE_IDS["dataset_id"]], "prompt_config": {"prologue": "How can I help?"},
    "llm_setting": {"temperature": 0.2}, "top_n": 8,
}


class Listing(Paging, total=False):
    """One page of a list in an order. `id` and `name` match whole, `keywords` a part of the name."""

    orderby: Annotated[str, Field(json_schema_extra={"enum": [*ORDER_FIELDS]}, description="create_time where absent")]
    desc: Annotated[bool, Field(description="true where absent")]
    id: str
    name: str


class Chats(Listing, total=False):
    keywords: str
    owner_ids: Annotated[list[str], Field(max_length=OWNERS)]


class AdvisedChat(Chat, Advised):
    """A chat, with what of it has no effect."""


class ListedChat(Chat):
    nickname: None
    tenant_avatar: None


class ChatPage(TypedDict):
    chats: list[ListedChat]
    total: int


@blueprint.post("")
@described(AdvisedChat, body=NewChat, example=EXAMPLE)
def create() -> Response:
    """Create a chat; what the body leaves out gets RAGFlow's defaults."""
    body = read_object()
    refuse_tenant(body)
    body["name"] = chat_name(body.get("name"), "`name` is required")
    given = checked(body)
    fields = DEFAULTS | given
    prompt = PROMPT_DEFAULTS | fields.pop("prompt_config", {})
    prompt["system"] = prompt["system"] or DEFAULT_SYSTEM
    fields |= {"prompt_config": prompt, "kb_ids": fields.pop("dataset_ids")}
    fields["prompt_config"]["parameters"] = with_parameters(prompt, fields["kb_ids"])
    fields.setdefault("llm_id", model_id(DEFAULT))
    fields.setdefault("tenant_llm_id", model_id(DEFAULT))
    return success(_shown(DialogService.create(principal(), fields)) | _advice(body, given))


@blueprint.get("")
@described(ChatPage, query=Chats)
def list_chats() -> Response:
    """The caller's chats, newest first, with their number over all pages."""
    orderby = order_field()
    page, size = paging()
    owners = request.args.getlist("owner_ids")
    if len(owners) > OWNERS:
        raise InvalidArgument(f"owner_ids must contain at most {OWNERS} IDs")
    if any(owners) and principal().tenant_id not in owners:
        return success({"chats": [], "total": 0})
    found = DialogService.get_list(
        principal(), page, size, orderby, descending(), id=request.args.get("id", ""),
        name=request.args.get("name", ""), keywords=request.args.get("keywords", ""),
    )
    datasets = DialogService.datasets_of(principal(), found.rows)
    rows = [build_chat_response(row, datasets) | {"nickname": None, "tenant_avatar": None} for row in found.rows]
    return success({"chats": rows, "total": found.total})


@blueprint.get("/<chat_id>")
@described(Chat)
def get(chat_id: str) -> Response:
    """One chat."""
    return success(_shown(DialogService.get_by_id(principal(), chat_id)))


@blueprint.put("/<chat_id>")
@described(AdvisedChat, body=ChatChange, example=EXAMPLE | {"name": "First-line support"})
def replace(chat_id: str) -> Response:
    """Change a chat; an object in the body replaces the stored one, what is left out stays."""
    DialogService.get_by_id(principal(), chat_id)
    body = read_object()
    refuse_tenant(body)
    if "name" in body:
        body["name"] = chat_name(body["name"], "`name` is required")
    return _update(chat_id, body, checked(body))


@blueprint.patch("/<chat_id>")
@described(AdvisedChat, body=ChatChange, example={"prompt_config": {"empty_response": "I don't know."}})
def patch(chat_id: str) -> Response:
    """Change a chat; `llm_setting` and `prompt_config` are merged into the stored ones."""
    dialog = DialogService.get_by_id(principal(), chat_id)
    body = read_object()
    if "name" in body:
        if body["name"] is None:
            raise InvalidArgument("`name` must be a text, not null")
        body["name"] = chat_name(body["name"], "`name` cannot be empty")
    if "llm_setting" in body and not isinstance(body["llm_setting"], dict):
        raise InvalidData("`llm_setting` should be an object.")
    fields = checked(body)
    for name in ("llm_setting", "prompt_config"):
        if name in fields:
            fields[name] = getattr(dialog, name) | fields[name]
    return _update(chat_id, body, fields)


@blueprint.delete("/<chat_id>")
@described(Literal[True])
def delete(chat_id: str) -> Response:
    """Delete one chat; its sessions are kept until they are pruned."""
    if not DialogService.delete(principal(), [chat_id]):
        raise NotOwned("no authorization")
    return success(True)


@blueprint.delete("")
@described(Report | Literal[True], body=ChatDeletion, example={"ids": [EXAMPLE_IDS["chat_id"]]})
def delete_many() -> Response:
    """Delete chats by id, or all of the caller's with `delete_all` true."""
    body = read_object()
    ids = ids_of(body)
    if ids:
        return report(
            ids, lambda wanted: DialogService.delete(principal(), wanted), "chat", "Chat({id}) not found.",
            done=lambda count: {"success_count": count},
        )
    if body.get("delete_all") is True:
        deleted = DialogService.delete(principal(), DialogService.ids(principal()))
        return success({"success_count": len(deleted)} if deleted else {})
    old_form = body.get("chat_id")
    if old_form:
        if not isinstance(old_form, str):
            raise InvalidArgument("`chat_id` must be the text of an id")
        if not DialogService.delete(principal(), [old_form]):
            raise InvalidData(f"Failed to delete chat {old_form}")
        return success(True)
    return success({})


def _update(chat_id: str, body: dict[str, Any], fields: dict[str, Any]) -> Response:
    if "dataset_ids" in fields:
        fields["kb_ids"] = fields.pop("dataset_ids")
    changed = DialogService.update_by_id(principal(), chat_id, fields)
    return success(_shown(changed) | _advice(body, {"kb_ids": changed.kb_ids} | fields))


def _advice(body: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`warnings` about what of a body, and of the fields that it gave, has no effect here, or nothing."""
    return warned(warnings(principal(), given, chatkeep().models) + ignored(body, IGNORED))


def _shown(dialog: Dialog) -> dict[str, Any]:
    return build_chat_response(dialog, DialogService.datasets_of(principal(), [dialog]))


def order_field() -> str:
    """`orderby` of a list. Raises InvalidArgument for a field that isn't one to order by."""
    orderby = request.args.get("orderby", "create_time")
    if orderby not in ORDER_FIELDS:
        raise InvalidArgument(f"invalid orderby field: {orderby}")
    return orderby
