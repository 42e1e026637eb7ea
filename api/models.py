"""The operator's models, as clients choose among them: names and ids, never an address or a key."""

from typing import Annotated, Any

from flask import Blueprint, Response, request
from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.described import described
from api.responses import success
from services.api_tokens import TenantService
from services.errors import InvalidArgument
from services.models import ModelEntry, ModelType, model_id

blueprint = Blueprint("models", __name__, url_prefix="/api/v1")
blueprint.before_request(authenticate)

WORDS = {ModelType.CHAT: "llm", ModelType.EMBEDDING: "embd", ModelType.RERANK: "rerank"}  # RAGFlow's, in field names
NEVER = ("asr", "img2txt", "tts", "ocr")  # what RAGFlow has models for, and this server hasn't


class ModelRow(TypedDict):
    """A model of the operator's; `model` is what its server calls it."""

    name: str
    id: str
    llm_id: str
    tenant_llm_id: str
    model_type: list[ModelType]
    model: str | None
    available: bool


class Defaults(TypedDict):
    """The default model of each type that RAGFlow knows, by name and by id, and all models."""

    tenant_id: str
    name: str
    role: str
    parser_ids: str
    asr_id: str
    tenant_asr_id: None
    img2txt_id: str
    tenant_img2txt_id: None
    tts_id: str
    tenant_tts_id: None
    ocr_id: str
    tenant_ocr_id: None
    llm_id: str
    tenant_llm_id: str
    embd_id: str
    tenant_embd_id: str | None
    rerank_id: str
    tenant_rerank_id: str | None
    models: list[ModelRow]


class ModelQuery(TypedDict, total=False):
    type: Annotated[str, Field(json_schema_extra={"enum": [*ModelType]})]


@blueprint.get("/users/me/models")
@described(Defaults)
def defaults() -> Response:
    """The caller's default model of each type, in RAGFlow's words, and all models to choose from."""
    ids: dict[str, Any] = {}
    for word in (*NEVER, *WORDS.values()):
        ids |= {f"{word}_id": "", f"tenant_{word}_id": None}
    for type, entry in reversed([*chatkeep().models]):  # the first of a type is its default
        ids |= {f"{WORDS[type]}_id": entry.name, f"tenant_{WORDS[type]}_id": model_id(entry.name)}
    tenant = TenantService.get(principal())
    told = {"tenant_id": tenant.id, "name": tenant.name, "role": "owner", "parser_ids": "naive:General"}
    return success(told | ids | {"models": [_shown(type, entry) for type, entry in chatkeep().models]})


@blueprint.get("/models")
@described(list[ModelRow], query=ModelQuery)
def list_models() -> Response:
    """Every model, or those of one `type`: chat, embedding or rerank."""
    wanted = request.args.get("type", "").lower()
    if wanted and wanted not in list(ModelType):
        raise InvalidArgument(f"`type` must be {', '.join(ModelType)}, not {wanted[:80]!r}")
    return success([_shown(type, entry) for type, entry in chatkeep().models if wanted in ("", type)])


def _shown(type: ModelType, entry: ModelEntry[Any]) -> dict[str, Any]:
    return {
        "name": entry.name, "id": model_id(entry.name), "llm_id": entry.name, "tenant_llm_id": model_id(entry.name),
        "model_type": [type], "model": entry.upstream or None, "available": True,
    }
