"""Chats over RAGFlow's API: one ordered list of checks, the same for creating and changing."""

from collections import Counter
from typing import Any

from flask import Blueprint, Response, request

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import descending, ids_of, limits, paging, read_object
from api.deletions import report
from api.responses import build_chat_response, success
from db.models import Dialog
from services.dialog_service import (
    DEFAULT_EMPTY_RESPONSE,
    DEFAULT_PROLOGUE,
    DEFAULT_SYSTEM,
    ORDER_FIELDS,
    DialogService,
)
from services.errors import ChatkeepError, InvalidArgument, InvalidData, NotOwned
from services.knowledge.datasets import DatasetService
from services.messages import configured
from services.models import DEFAULT, model_id

blueprint = Blueprint("chats", __name__, url_prefix="/api/v1/chats")
blueprint.before_request(authenticate)

NAME_BYTES = 255
PROMPT_TEXTS = ("system", "prologue", "empty_response")
DEFAULTS: dict[str, Any] = {
    "description": "A helpful Assistant", "icon": "", "top_n": 6, "top_k": 1024, "similarity_threshold": 0.1,
    "vector_similarity_weight": 0.3, "rerank_id": "", "llm_setting": {}, "dataset_ids": [],
}
PROMPT_DEFAULTS: dict[str, Any] = {
    "system": DEFAULT_SYSTEM, "prologue": DEFAULT_PROLOGUE, "empty_response": DEFAULT_EMPTY_RESPONSE,
    "quote": True, "tts": False, "refine_multiturn": True,
}
NUMBERS: dict[str, type[int] | type[float]] = {
    "similarity_threshold": float, "vector_similarity_weight": float, "top_n": int, "top_k": int,
}
TEXTS = {"description": None, "icon": None, "language": 32, "prompt_type": 16, "do_refer": 1}
OBJECTS = ("llm_setting", "meta_data_filter")
BUILT_IN_RERANKERS = {"BAAI/bge-reranker-v2-m3", "maidalun1020/bce-reranker-base_v1"}


@blueprint.post("")
def create() -> Response:
    """Create a chat; what the body leaves out gets RAGFlow's defaults."""
    body = read_object()
    _refuse_tenant(body)
    body["name"] = _name(body.get("name"), "`name` is required")
    fields = DEFAULTS | _checked(body)
    prompt = PROMPT_DEFAULTS | fields.pop("prompt_config", {})
    prompt["system"] = prompt["system"] or DEFAULT_SYSTEM
    fields |= {"prompt_config": prompt, "kb_ids": fields.pop("dataset_ids")}
    fields["prompt_config"]["parameters"] = _parameters(prompt, fields["kb_ids"])
    fields.setdefault("llm_id", model_id(DEFAULT))
    fields.setdefault("tenant_llm_id", model_id(DEFAULT))
    return success(_shown(DialogService.create(principal(), fields)))


@blueprint.get("")
def list_chats() -> Response:
    """The caller's chats, newest first, with their number over all pages."""
    orderby = order_field()
    page, size = paging()
    owners = request.args.getlist("owner_ids")
    if len(owners) > 100:
        raise InvalidArgument("owner_ids must contain at most 100 IDs")
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
def get(chat_id: str) -> Response:
    """One chat."""
    return success(_shown(DialogService.get_by_id(principal(), chat_id)))


@blueprint.put("/<chat_id>")
def replace(chat_id: str) -> Response:
    """Change a chat; an object in the body replaces the stored one, what is left out stays."""
    DialogService.get_by_id(principal(), chat_id)
    body = read_object()
    _refuse_tenant(body)
    if "name" in body:
        body["name"] = _name(body["name"], "`name` is required")
    return _update(chat_id, _checked(body))


@blueprint.patch("/<chat_id>")
def patch(chat_id: str) -> Response:
    """Change a chat; `llm_setting` and `prompt_config` are merged into the stored ones."""
    dialog = DialogService.get_by_id(principal(), chat_id)
    body = read_object()
    if "name" in body:
        if body["name"] is None:
            raise InvalidArgument("`name` must be a text, not null")
        body["name"] = _name(body["name"], "`name` cannot be empty")
    if "llm_setting" in body and not isinstance(body["llm_setting"], dict):
        raise InvalidData("`llm_setting` should be an object.")
    fields = _checked(body)
    for name in ("llm_setting", "prompt_config"):
        if name in fields:
            fields[name] = getattr(dialog, name) | fields[name]
    return _update(chat_id, fields)


@blueprint.delete("/<chat_id>")
def delete(chat_id: str) -> Response:
    """Delete one chat; its sessions are kept until they are pruned."""
    if not DialogService.delete(principal(), [chat_id]):
        raise NotOwned("no authorization")
    return success(True)


@blueprint.delete("")
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


def _update(chat_id: str, fields: dict[str, Any]) -> Response:
    if "dataset_ids" in fields:
        fields["kb_ids"] = fields.pop("dataset_ids")
    return success(_shown(DialogService.update_by_id(principal(), chat_id, fields)))


def _shown(dialog: Dialog) -> dict[str, Any]:
    return build_chat_response(dialog, DialogService.datasets_of(principal(), [dialog]))


def order_field() -> str:
    """`orderby` of a list. Raises InvalidArgument for a field that isn't one to order by."""
    orderby = request.args.get("orderby", "create_time")
    if orderby not in ORDER_FIELDS:
        raise InvalidArgument(f"invalid orderby field: {orderby}")
    return orderby


# -- the checks, in RAGFlow's order -------------------------------------------------------------


def _refuse_tenant(body: dict[str, Any]) -> None:
    if body.get("tenant_id"):
        raise InvalidData("`tenant_id` must not be provided")


def _name(value: Any, when_blank: str) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InvalidData(when_blank)
    if not isinstance(value, str):
        raise InvalidData("chat name must be a string")
    length = len(value.strip().encode())
    if length > NAME_BYTES:
        raise InvalidData(f"chat name length is {length} which is larger than {NAME_BYTES}")
    return value.strip()


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """The columns of a chat that the body names, each checked; unknown and read-only keys are dropped."""
    fields: dict[str, Any] = {"name": body["name"]} if "name" in body else {}
    if "dataset_ids" in body:
        fields["dataset_ids"] = _datasets(body["dataset_ids"])
    fields |= _model_pair(body, "llm_id", "tenant_llm_id") | _model_pair(body, "rerank_id", "tenant_rerank_id")
    if "prompt_config" in body:
        fields["prompt_config"] = _prompt(body["prompt_config"])
    for name in OBJECTS:
        if name in body:
            fields[name] = _object(name, body[name], InvalidArgument)
    for name, kind in NUMBERS.items():
        if name in body:
            fields[name] = _number(name, body[name], kind)
    for name, length in TEXTS.items():
        if name in body:
            fields[name] = _text(name, body[name], length)
    return fields


def _datasets(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidData("`dataset_ids` should be a list.")
    if any(item is not None and not isinstance(item, str) for item in value):
        raise InvalidArgument("every item of `dataset_ids` must be the text of an id")
    ids = list(dict.fromkeys(item for item in value if item))
    if len(ids) > limits().ids:
        raise InvalidArgument(f"`dataset_ids` holds {len(ids)} ids; at most {limits().ids} are allowed")
    DatasetService.check(principal(), ids)
    return ids


def _model_pair(body: dict[str, Any], by_name: str, by_id: str) -> dict[str, Any]:
    """`llm_id` and `tenant_llm_id` say the same model, and either fills the other; empty clears both."""
    given = {key: body[key] for key in (by_name, by_id) if key in body}
    if not given:
        return {}
    name, id = given.get(by_name), given.get(by_id)
    if name is not None and not isinstance(name, str):
        raise InvalidData(f"`{by_name}` must be a string")
    if id is not None and not isinstance(id, str):
        raise InvalidData(f"`{by_id}` must be a tenant model id")
    if not name and not id:
        empty = model_id(DEFAULT) if by_name == "llm_id" else ""
        return {by_name: empty, by_id: empty or None}
    if name and not _resolves(by_name, name):
        raise InvalidData(f"`{by_name}` {name} doesn't exist")
    if id and not _resolves(by_name, id):
        raise InvalidData(f"`{by_id}` must be a valid tenant model id")
    key = id or (name if len(name or "") == 32 else model_id(name or ""))
    if name and id and id not in (name, model_id(name)):
        raise InvalidData(f"`{by_name}` and `{by_id}` must refer to the same model")
    return {by_name: name or id, by_id: key}


def _resolves(by_name: str, name: str) -> bool:
    if by_name == "rerank_id":
        return name.split("@", maxsplit=1)[0] in BUILT_IN_RERANKERS
    return chatkeep().models.find(name) is not None


def _prompt(value: Any) -> dict[str, Any]:
    prompt = _object("prompt_config", value)
    for name in PROMPT_TEXTS:
        if isinstance(prompt.get(name), dict | list):
            raise InvalidArgument(f"`prompt_config.{name}` must be a text")
    parameters = prompt.get("parameters")
    if parameters is None:
        return {key: item for key, item in prompt.items() if key != "parameters"}
    if not isinstance(parameters, list) or not all(
        isinstance(item, dict) and isinstance(item.get("key"), str) for item in parameters
    ):
        raise InvalidArgument("`parameters` must be a list of objects, each with a text as `key`")
    counts = Counter(item["key"] for item in parameters)
    repeated = next((key for key, count in counts.items() if count > 1), None)
    if repeated is not None:
        raise InvalidData(f"`parameters` contains duplicate key: {repeated}")
    return prompt


def _parameters(prompt: dict[str, Any], dataset_ids: list[str]) -> list[dict[str, Any]]:
    """A new chat's prompt parameters: `date` always, `knowledge` where it is used."""
    knowledge, date = {"key": "knowledge", "optional": False}, {"key": "date", "optional": True}
    given = prompt.get("parameters")
    if given is None:
        return [knowledge, date]
    if not given and dataset_ids and "{knowledge}" in configured(prompt["system"]):
        given = [knowledge]
    return given if any(item["key"] == "date" for item in given) else [*given, date]


def _object(name: str, value: Any, refusal: type[ChatkeepError] = InvalidData) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refusal(f"`{name}` should be an object.")
    return value


def _number(name: str, value: Any, kind: type[int] | type[float]) -> float:
    """A number as sent; a text that is none counts as 0, as in RAGFlow's database."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidArgument(f"`{name}` must be a number")
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        return kind(0)
    return number if abs(number) < 2**63 else kind(0)  # NaN is never less


def _text(name: str, value: Any, length: int | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"`{name}` must be a text")
    if value is not None and length is not None and len(value) > length:
        raise InvalidArgument(f"`{name}` has {len(value)} characters; at most {length} are allowed")
    return value


