"""Datasets over RAGFlow's API."""

from typing import Annotated, Any, Literal

from flask import Blueprint, Response, request
from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import VISIBLE, Deletion, descending, ids_of, paging, read_object
from api.chats import Listing, order_field
from api.described import EXAMPLE_IDS, described
from api.ignored import CHUNK_METHOD, ignored, warned
from api.reports import Report, report
from api.responses import Advised, Times, dumps, envelope, success, times
from db.models import Dataset
from services.errors import InvalidArgument, InvalidData
from services.knowledge.datasets import NAME_LENGTH, DatasetService

blueprint = Blueprint("datasets", __name__, url_prefix="/api/v1/datasets")
blueprint.before_request(authenticate)

IGNORED = (
    "chunk_method", "permission", "parser_config", "auto_metadata_config", "pagerank", "parse_type", "pipeline_id",
    "language",
)

FileName = Annotated[str, Field(pattern=VISIBLE, max_length=NAME_LENGTH)]
EXAMPLE = {"name": "Handbook", "description": "What new colleagues ask."}


class DatasetChange(TypedDict, total=False):
    """What a dataset may be given; other fields of RAGFlow's have no effect, and the answer says so."""

    name: FileName
    description: str | None
    avatar: str | None
    embedding_model: Annotated[str | None, Field(description="a name of `GET /api/v1/models?type=embedding`")]
    chunk_method: Any
    permission: Any


class NewDataset(DatasetChange):
    name: FileName  # type: ignore[misc]


class DatasetList(Listing, total=False):
    keywords: str


class DatasetRow(Times):
    """A dataset. `embedding_model` is empty where passages are found by words alone."""

    id: str
    tenant_id: str
    created_by: str
    name: str
    description: str | None
    avatar: str | None
    embedding_model: str
    permission: Literal["me"]
    chunk_method: str
    parser_config: dict[str, Any]
    pagerank: Literal[0]
    status: str
    document_count: int
    chunk_count: int


class AdvisedDataset(DatasetRow, Advised):
    """A dataset, with what of the request has no effect."""


@blueprint.post("")
@described(AdvisedDataset, body=NewDataset, example=EXAMPLE)
def create() -> Response:
    """Create a dataset; its vectors are made by the operator's embedding model, where there is one."""
    body = read_object()
    if not isinstance(body.get("name"), str):
        raise InvalidArgument("`name` is required and must be a text")
    texts = {name: text_of(body, name) for name in ("description", "avatar")}
    made = DatasetService.create(
        principal(), body["name"], **texts, embedding_model=_embedding(body.get("embedding_model"))
    )
    return success(_shown(made) | warned(ignored(body, IGNORED)))


@blueprint.get("")
@described(list[DatasetRow], query=DatasetList, beside={"total_datasets": int})
def list_datasets() -> Response:
    """One page of the caller's datasets, with their number over all pages as `total_datasets`."""
    page, size = paging()
    found = DatasetService.get_list(
        principal(), page, size, order_field(), descending(), id=request.args.get("id", ""),
        name=request.args.get("name", ""), keywords=request.args.get("keywords", ""),
    )
    return envelope(0, "success", [_shown(row) for row in found.rows], total_datasets=found.total)


@blueprint.get("/<dataset_id>")
@described(DatasetRow)
def get(dataset_id: str) -> Response:
    """One dataset."""
    return success(_shown(DatasetService.get_by_id(principal(), dataset_id)))


@blueprint.put("/<dataset_id>")
@described(AdvisedDataset, body=DatasetChange, example=EXAMPLE | {"name": "Staff handbook"})
def update(dataset_id: str) -> Response:
    """Change name, description or avatar; the embedding model stays, since the vectors were made with it."""
    body = read_object()
    dataset = DatasetService.get_by_id(principal(), dataset_id)
    if body.get("embedding_model") and _embedding(body["embedding_model"]) != dataset.embedding_model:
        raise InvalidData("a dataset's `embedding_model` can't be changed; make a new dataset with the other one")
    fields: dict[str, Any] = {name: text_of(body, name) for name in ("name", "description", "avatar") if name in body}
    if fields.get("name", "") is None:
        raise InvalidArgument("`name` must be a text, not null")
    return success(_shown(DatasetService.update(principal(), dataset_id, fields)) | warned(ignored(body, IGNORED)))


@blueprint.delete("")
@described(Report, body=Deletion, example={"ids": [EXAMPLE_IDS["dataset_id"]]})
def delete_many() -> Response:
    """Erase datasets by id, or all of the caller's with `delete_all` true; their documents go with them."""
    body = read_object()
    ids = ids_of(body)
    if ids:
        return report(
            ids, lambda wanted: DatasetService.delete(principal(), wanted), "dataset",
            "You don't own the dataset {id}", done=lambda count: {"success_count": count},
        )
    if body.get("delete_all") is True:
        every = [dataset.id for dataset in DatasetService.list(principal())]
        return success({"success_count": len(DatasetService.delete(principal(), every))})
    return success({})


def text_of(body: dict[str, Any], name: str) -> str | None:
    """An optional text of any length. Raises InvalidArgument."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"`{name}` must be a text, not {dumps(value).decode()[:80]}")
    return value


def _embedding(wanted: Any) -> str:
    """The name of the embedding model that a body asks for; RAGFlow's `name@provider` names it too."""
    if wanted is not None and not isinstance(wanted, str):
        raise InvalidArgument("`embedding_model` must be a text")
    model = chatkeep().models.find_embedding((wanted or "").split("@")[0])
    if wanted and model is None:
        raise InvalidData(f"the embedding model {wanted[:128]!r} isn't set up here")
    return model.name if model else ""


def _shown(dataset: Dataset) -> dict[str, Any]:
    return {
        "id": dataset.id, "tenant_id": dataset.tenant_id, "created_by": dataset.tenant_id, "name": dataset.name,
        "description": dataset.description, "avatar": dataset.avatar, "embedding_model": dataset.embedding_model,
        "permission": "me", "chunk_method": CHUNK_METHOD, "parser_config": {}, "pagerank": 0, "status": "1",
        "document_count": dataset.document_count, "chunk_count": dataset.chunk_count,
    } | times(dataset)
