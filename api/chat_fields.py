"""What a chat's body may hold: one ordered list of checks, in RAGFlow's order, with its texts."""

from collections import Counter
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import principal
from api.body import VISIBLE, Deletion, limits
from services.errors import ChatkeepError, InvalidArgument, InvalidData
from services.knowledge.datasets import DatasetService
from services.knowledge.metadata import read_filter
from services.messages import configured
from services.models import DEFAULT, Shelf, model_id

NAME_BYTES = 255
MODEL_LENGTH = 128  # characters of a model's name that a chat can hold
PROMPT_TEXTS = ("system", "prologue", "empty_response")
NUMBERS: dict[str, type[int] | type[float]] = {
    "similarity_threshold": float, "vector_similarity_weight": float, "top_n": int, "top_k": int,
}
TEXTS = {"description": None, "icon": None, "language": 32, "prompt_type": 16, "do_refer": 1}
NEVER_NULL = {"prompt_type", "do_refer"}
OBJECTS = ("llm_setting", "meta_data_filter")
BUILT_IN_RERANKERS = {"BAAI/bge-reranker-v2-m3", "maidalun1020/bce-reranker-base_v1"}

ChatName = Annotated[str, Field(
    pattern=VISIBLE, max_length=NAME_BYTES, description=f"at most {NAME_BYTES} bytes of UTF-8, unlike any other chat's"
)]
Numeral = Annotated[float, Field(description="a text counts as the number that it is, or as 0")]


class Parameter(TypedDict):
    """A place of the system prompt, filled in by a key of the question's body."""

    key: str
    optional: NotRequired[bool]


class PromptConfig(TypedDict, total=False):
    """How a chat speaks; other keys are kept."""

    system: str | float | bool | None
    prologue: str | float | bool | None
    empty_response: str | float | bool | None
    parameters: list[Parameter] | None
    quote: bool
    refine_multiturn: bool


class ChatChange(TypedDict, total=False):
    """What a chat may be given; other keys are dropped, and the answer says so of those that RAGFlow knows."""

    name: ChatName
    dataset_ids: Annotated[list[str | None], Field(json_schema_extra={"maxItems": "limits.ids"})] | None
    llm_id: str | None
    tenant_llm_id: str | None
    rerank_id: str | None
    tenant_rerank_id: str | None
    prompt_config: PromptConfig
    llm_setting: dict[str, Any]
    meta_data_filter: dict[str, Any]
    similarity_threshold: Numeral
    vector_similarity_weight: Numeral
    top_n: Numeral
    top_k: Numeral
    description: str | None
    icon: str | None
    language: Annotated[str, Field(max_length=TEXTS["language"])] | None
    prompt_type: Annotated[str, Field(max_length=TEXTS["prompt_type"])]
    do_refer: Annotated[str, Field(max_length=TEXTS["do_refer"])]


class NewChat(ChatChange):
    """The same with a name."""

    name: ChatName  # type: ignore[misc]


class ChatDeletion(Deletion, total=False):
    """The same, or one chat in RAGFlow's older form."""

    chat_id: str | None


def refuse_tenant(body: dict[str, Any]) -> None:
    """A chat belongs to its token's tenant. Raises InvalidData for a body that names one."""
    if body.get("tenant_id"):
        raise InvalidData("`tenant_id` must not be provided")


def chat_name(value: Any, when_blank: str) -> str:
    """A chat's name, trimmed: a text of 1 to 255 bytes. Raises InvalidData, with `when_blank` where it is empty."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InvalidData(when_blank)
    if not isinstance(value, str):
        raise InvalidData("chat name must be a string")
    length = len(value.strip().encode())
    if length > NAME_BYTES:
        raise InvalidData(f"chat name length is {length} which is larger than {NAME_BYTES}")
    return value.strip()


def checked(body: dict[str, Any]) -> dict[str, Any]:
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
    read_filter(fields.get("meta_data_filter"))
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
    DatasetService.check_embeddings(principal(), ids)
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
    shelf: Shelf[Any] = chatkeep().models.chat if by_name == "llm_id" else chatkeep().models.rerank
    named = _resolved(shelf, name) if name else None
    if name and not named:
        raise InvalidData(f"`{by_name}` {name} doesn't exist")
    meant = named if not id or id == model_id(name or "") else shelf.name_of(id)
    if not meant:
        raise InvalidData(f"`{by_id}` must be a valid tenant model id")
    if named and meant != named:
        raise InvalidData(f"`{by_name}` and `{by_id}` must refer to the same model")
    return {by_name: name or id, by_id: id or shelf.id_of(name or "")}


def _resolved(shelf: Shelf[Any], key: str) -> str | None:
    """The name of the model that a name or an id means; None for none."""
    if len(key) > MODEL_LENGTH:
        return None
    entry = shelf.entry(key)
    if entry:
        return str(entry.name)
    built_in = key.split("@", maxsplit=1)[0]
    return built_in if shelf is chatkeep().models.rerank and built_in in BUILT_IN_RERANKERS else None


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


def with_parameters(prompt: dict[str, Any], dataset_ids: list[str]) -> list[dict[str, Any]]:
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
    if not isinstance(value, str) and (value is not None or name in NEVER_NULL):
        raise InvalidArgument(f"`{name}` must be a text")
    if value is not None and length is not None and len(value) > length:
        raise InvalidArgument(f"`{name}` has {len(value)} characters; at most {length} are allowed")
    return value
