"""`chatkeep dataset`: documents from files, parsed here with a progress bar, or by a server that runs meanwhile."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import click
from rich.progress import Progress

from api.cli_base import (
    existing_tenant,
    json_option,
    say,
    sentence_on_error,
    settings_of,
    tenant_of,
    tenant_option,
)
from api.cli_files import named_files
from api.cli_progress import progress_bars
from db.models import Dataset, DatasetDocument
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService, Kept
from services.knowledge.ingestion import Ingestion
from services.models import ModelDirectory
from services.principal import Principal

_LOOK = 0.2  # seconds between two looks at what is left
_PAGE = 100


@click.group()
def dataset() -> None:
    """Datasets: the documents that chats answer from.

    \b
    Example: chatkeep dataset add handbook docs/*.md
    """


@dataset.command("add")
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@tenant_option
@json_option
@sentence_on_error
def add_to_dataset(name: str, paths: tuple[Path, ...], tenant: str, as_json: bool) -> None:
    """Add text, Markdown, HTML and PDF files to a dataset, made on first use. A file of the same name is replaced.

    A file is called by its own name, one in a folder that is named by its path below that folder; hidden files in it
    are left out. Exit code 1 if a file could not be read. Interrupted, it goes on where it was when it is run again.

    \b
    Examples: chatkeep dataset add handbook docs/*.md
              chatkeep dataset add handbook docs
              chatkeep dataset add --tenant acme handbook FILE.pdf
    """
    settings = settings_of()
    files = named_files(paths, settings.limits.upload_bytes)
    principal = tenant_of(tenant)
    models = ModelDirectory.of(settings)
    embedding = models.find_embedding()
    found = DatasetService.ensure(principal, name, embedding.name if embedding else "")
    with progress_bars() as progress, closing(Ingestion(settings.ingest, models.find_embedding)) as ingestion:
        ingestion.open()
        kept = _put(principal, found, files, progress)
        ingestion.wake()
        _wait(principal, found, sum(became is not Kept.AS_IT_WAS for became in kept.values()), progress)
    failed = {row.id: row for row in _failed(principal, found) if row.id in kept}
    read = [became for id, became in kept.items() if id not in failed]
    added, changed = read.count(Kept.ADDED), read.count(Kept.CHANGED)
    reasons = {row.name: row.progress_msg for row in failed.values()}
    if as_json:
        click.echo(json.dumps({"dataset_id": found.id, "name": name, "files": len(files), "added": added,
                               "changed": changed, "failed": reasons}))
    else:
        unread = f", {len(failed)} failed" if failed else ""
        click.echo(f"{name} ({found.id}): {len(files)} files, {added} added, {changed} changed{unread}")
        for document, reason in reasons.items():
            say(f"{document}: {reason}", "yellow", err=True)
    sys.exit(1 if failed else 0)


@dataset.command("list")
@tenant_option
@json_option
@sentence_on_error
def list_datasets(tenant: str, as_json: bool) -> None:
    """List a tenant's datasets.

    \b
    Example: chatkeep dataset list
    """
    rows = [
        {"id": row.id, "name": row.name, "documents": row.document_count, "chunks": row.chunk_count}
        for row in DatasetService.list(existing_tenant(tenant))
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(f"{row['id']}  {row['documents']} documents, {row['chunks']} chunks  {row['name']}")


@dataset.command("delete")
@click.argument("name")
@tenant_option
@click.option("--yes", is_flag=True, help="Delete. Without it nothing is changed.")
@json_option
@sentence_on_error
def delete_dataset(name: str, tenant: str, yes: bool, as_json: bool) -> None:
    """Count, and with --yes delete for good, a dataset's documents with their files and passages.

    Chats that answer from it stay, and find nothing there any more; what stored answers quote stays with them.

    \b
    Examples: chatkeep dataset delete handbook
              chatkeep dataset delete handbook --yes --json
    """
    principal = existing_tenant(tenant)
    found = DatasetService.get_by_name(principal, name)
    deleted = yes and bool(DatasetService.delete(principal, [found.id]))
    if as_json:
        click.echo(json.dumps({"dataset_id": found.id, "name": found.name, "documents": found.document_count,
                               "chunks": found.chunk_count, "deleted": deleted}))
        return
    counted = f"{found.name} ({found.id}): {found.document_count} documents, {found.chunk_count} chunks"
    click.echo(f"{counted} are deleted" if deleted else f"{counted}; --yes deletes them")


def _put(principal: Principal, dataset: Dataset, files: Mapping[str, Path], progress: Progress) -> dict[str, Kept]:
    """Keep the files, to be parsed; the ids of their documents, and what became of each."""
    kept = {}
    for name, path in progress.track(files.items(), description="reading"):
        document, became = DocumentService.put(principal, dataset.id, name, path.read_bytes(), str(path))
        kept[document.id] = became
    return kept


def _wait(principal: Principal, dataset: Dataset, total: int, progress: Progress) -> None:
    task = progress.add_task("parsing", total=total)
    while left := DocumentService.get_list(principal, dataset.id, 1, 1, runs=["RUNNING"]).total:
        progress.update(task, completed=max(total - left, 0))
        time.sleep(_LOOK)
    progress.update(task, completed=total)


def _failed(principal: Principal, dataset: Dataset) -> Iterator[DatasetDocument]:
    page = 1
    while rows := DocumentService.get_list(principal, dataset.id, page, _PAGE, "name", False, runs=["FAIL"]).rows:
        yield from rows
        page += 1
