"""Documents of a dataset over RAGFlow's API: upload, parse, follow, replace, read, delete."""

from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

from flask import Blueprint, Response, g, request
from pydantic import Field
from typing_extensions import TypedDict

from api.app_state import chatkeep
from api.auth import authenticate, principal
from api.body import Deletion, Flag, Id, descending, flag, ids_of, paging, read_files, read_object
from api.chats import Listing, order_field
from api.datasets import FileName
from api.described import EXAMPLE_IDS, described
from api.ignored import CHUNK_METHOD, ignored, warned
from api.reports import Deleted, Report, report
from api.responses import Advised, Times, http_date, success, times
from db.models import Dataset, DatasetDocument
from services.errors import InvalidArgument, InvalidData
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService
from services.principal import Principal

blueprint = Blueprint("documents", __name__, url_prefix="/api/v1/datasets/<dataset_id>")
blueprint.before_request(authenticate)

RUNS = {"0": "UNSTART", "1": "RUNNING", "2": "CANCEL", "3": "DONE", "4": "FAIL"}  # RAGFlow knows both spellings
IGNORED = ("chunk_method", "parser_config")
NOT_THERE = "The dataset doesn't own the document {id}"
BINARY, PDF = "application/octet-stream", "application/pdf"  # what a file goes out as

Moment = Annotated[int, Field(ge=0, lt=10**15, description="epoch milliseconds; 0 is no bound")]
State = Annotated[str, Field(json_schema_extra={"enum": [*RUNS, *RUNS.values()]})]


class DocumentList(Listing, total=False):
    """The same, and documents of these ids, states and times of creation only."""

    keywords: str
    ids: list[str]
    run: list[State]
    create_time_from: Moment
    create_time_to: Moment


class DocumentChange(TypedDict, total=False):
    """What a document may be given; other fields of RAGFlow's have no effect, and the answer says so."""

    name: FileName
    meta_fields: Annotated[dict[str, Any], Field(description="what filters compare")]
    enabled: Annotated[Flag, Field(description="whether its passages are found; shown as `status`")]
    chunk_method: Any
    parser_config: Any


class DocumentIds(TypedDict):
    """Documents of the dataset."""

    document_ids: Annotated[list[Id], Field(min_length=1, json_schema_extra={"maxItems": "limits.ids"})]


class DocumentRow(Times):
    """A document and how far its parsing is; `progress` is -1 after a failure."""

    id: str
    dataset_id: str
    name: str
    location: str | None
    size: int
    chunk_count: int
    token_count: Literal[0]
    run: Annotated[str, Field(json_schema_extra={"enum": [*RUNS.values()]})]
    progress: float
    progress_msg: str
    process_begin_at: str | None
    process_duration: float
    meta_fields: dict[str, Any]
    chunk_method: str
    parser_config: dict[str, Any]
    source_type: str
    type: str
    status: Annotated[Literal["0", "1"], Field(description="0 where the document is switched off")]
    created_by: str
    thumbnail: None


class AdvisedDocument(DocumentRow, Advised):
    """A document, with what of the request has no effect."""


class DocumentPage(TypedDict):
    docs: list[DocumentRow]
    total: int


@blueprint.url_value_preprocessor
def _take_dataset_id(endpoint: str | None, values: dict[str, Any] | None) -> None:
    g.dataset_id = (values or {}).pop("dataset_id", "")


@blueprint.before_request
def _own_the_dataset() -> None:
    g.dataset = DatasetService.check(principal(), [g.dataset_id], parsed=False)[0]


def dataset() -> Dataset:
    """The dataset of this request's path."""
    found: Dataset = g.dataset
    return found


@blueprint.post("/documents")
@described(list[DocumentRow], files=True)
def upload() -> Response:
    """Keep files, all or none; one of a name that is there replaces it. They are parsed when that is asked for."""
    uploads = read_files()
    with chatkeep().uploads.turn():  # whoever waits for a dataset holds a connection, and its files
        files = [(name, upload.read()) for name, upload in uploads]
        kept = DocumentService.put_all(principal(), dataset().id, files)
    return success([_shown(document) for document in kept])


@blueprint.get("/documents")
@described(DocumentPage, query=DocumentList)
def list_documents() -> Response:
    """One page of the dataset's documents, with their state and their number over all pages."""
    page, size = paging()
    runs = [RUNS.get(run, run.upper()) for run in request.args.getlist("run") if run]
    found = DocumentService.get_list(
        principal(), dataset().id, page, size, order_field(), descending(),
        ids=[id for id in (*request.args.getlist("ids"), request.args.get("id", "")) if id],
        name=request.args.get("name", ""), keywords=request.args.get("keywords", ""), runs=runs,
        since=_moment("create_time_from"), until=_moment("create_time_to"),
    )
    return success({"docs": [_shown(row) for row in found.rows], "total": found.total})


@blueprint.get("/documents/<document_id>")
@described(None, media=(BINARY, PDF))
def download(document_id: str) -> Response:
    """The file as it came. Never shown by a browser as a page of ours: it is somebody's upload."""
    document = DocumentService.get(principal(), dataset().id, document_id)
    content = DocumentService.content(principal(), document)
    is_pdf = content[:5] == b"%PDF-"
    answer = Response(content, mimetype=PDF if is_pdf else BINARY)
    answer.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(document.name)}"
    return answer


@blueprint.put("/documents/<document_id>")
@blueprint.patch("/documents/<document_id>")
@described(AdvisedDocument, body=DocumentChange, example={"meta_fields": {"language": "English"}})
def update(document_id: str) -> Response:
    """Change a document's name, its `meta_fields`, which filters compare, or whether it is found (`enabled`)."""
    body = read_object()
    fields: dict[str, Any] = {name: body[name] for name in ("name", "meta_fields") if name in body}
    if not isinstance(fields.get("name", ""), str):
        raise InvalidArgument("`name` must be a text")
    if not isinstance(fields.get("meta_fields", {}), dict):
        raise InvalidArgument("`meta_fields` must be an object")
    if body.get("enabled") is not None:
        fields["enabled"] = int(flag(body, "enabled", default=True))
    changed = DocumentService.update(principal(), dataset().id, document_id, fields)
    return success(_shown(changed) | warned(ignored(body, IGNORED)))


@blueprint.delete("/documents")
@described(Deleted, body=Deletion, example={"ids": [EXAMPLE_IDS["document_id"]]})
def delete_many() -> Response:
    """Take documents out of the dataset by id, or all with `delete_all` true."""
    body = read_object()
    ids = ids_of(body)
    if body.get("delete_all") is True and not ids:
        ids = DocumentService.ids(principal(), dataset().id)
    if not ids:
        return success({"deleted": 0})
    return report(
        ids, lambda wanted: DocumentService.delete(principal(), dataset().id, wanted), "document", NOT_THERE,
        done=lambda count: {"deleted": count},
    )


@blueprint.post("/chunks")
@blueprint.post("/documents/parse")
@described(Report, body=DocumentIds, example={"document_ids": [EXAMPLE_IDS["document_id"]]})
def parse() -> Response:
    """Have documents parsed in the background; one that was parsed before is parsed again."""
    return _turn(DocumentService.start, "parsed")


@blueprint.delete("/chunks")
@blueprint.post("/documents/stop")
@described(Report, body=DocumentIds, example={"document_ids": [EXAMPLE_IDS["document_id"]]})
def stop() -> Response:
    """Cancel the parsing of documents; passages that they had before stay."""
    return _turn(DocumentService.stop, "stopped")


def _turn(change: Callable[[Principal, str, list[str]], set[str]], verb: str) -> Response:
    """`verb` is RAGFlow's word for it."""
    ids = ids_of(read_object(), "document_ids")
    if not ids:
        raise InvalidData("`document_ids` is required")
    answer = report(
        ids, lambda wanted: change(principal(), dataset().id, wanted), "document", NOT_THERE,
        done=lambda count: {"success_count": count}, verb=verb,
    )
    chatkeep().ingestion.wake()
    return answer


def _moment(name: str) -> int:
    """An epoch in milliseconds, 0 where there is none. Raises InvalidArgument."""
    text = request.args.get(name, "") or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidArgument(f"`{name}` must be a time in epoch milliseconds, not {text[:80]!r}")
    return int(text)


def _shown(document: DatasetDocument) -> dict[str, Any]:
    return {
        "id": document.id, "dataset_id": document.dataset_id, "name": document.name, "location": document.location,
        "size": document.size, "chunk_count": document.chunk_count, "token_count": 0, "run": document.run,
        "progress": document.progress, "progress_msg": document.progress_msg,
        "process_begin_at": http_date(int(document.began_at * 1000)) if document.began_at else None,
        "process_duration": document.duration, "meta_fields": document.meta_fields, "chunk_method": CHUNK_METHOD,
        "parser_config": {}, "source_type": "local", "type": "doc", "status": str(document.enabled),
        "created_by": document.tenant_id, "thumbnail": None,
    } | times(document)
