"""`chatkeep dataset`: documents from files, parsed here with a progress bar, or by a server that runs meanwhile."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click
from rich.progress import Progress

from api.cli_base import (
    Refusal,
    existing_tenant,
    json_option,
    say,
    sentence_on_error,
    settings_of,
    tenant_of,
    tenant_option,
)
from api.cli_progress import progress_bars
from conf.settings import Settings
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
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@tenant_option
@json_option
@sentence_on_error
def add_to_dataset(name: str, paths: tuple[Path, ...], tenant: str, as_json: bool) -> None:
    """Add text, Markdown, HTML and PDF files to a dataset, made on first use. A file of the same name is replaced.

    Exit code 1 if a file could not be read. Interrupted, it goes on where it was when it is run again.

    \b
    Examples: chatkeep dataset add handbook docs/*.md
              chatkeep dataset add --tenant acme handbook FILE.pdf
    """
    principal, settings = tenant_of(tenant), settings_of()
    models = ModelDirectory.of(settings)
    embedding = models.find_embedding()
    found = DatasetService.ensure(principal, name, embedding.name if embedding else "")
    with progress_bars() as progress, closing(Ingestion(settings.ingest, models.find_embedding)) as ingestion:
        ingestion.open()
        ids, kept = _put(principal, found, paths, progress, settings)
        added, changed = kept[Kept.ADDED], kept[Kept.CHANGED]
        ingestion.wake()
        _wait(principal, found, added + changed, progress)
    failed = [(row.name, row.progress_msg) for row in _failed(principal, found) if row.id in ids]
    told = {"dataset_id": found.id, "name": name, "files": len(paths), "added": added, "changed": changed,
            "failed": dict(failed)}
    said = f"{name} ({found.id}): {len(paths)} files, {added} added, {changed} changed"
    click.echo(json.dumps(told) if as_json else said)
    for document, reason in [] if as_json else failed:
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


def _put(
    principal: Principal, dataset: Dataset, paths: Sequence[Path], progress: Progress, settings: Settings
) -> tuple[set[str], Counter[Kept]]:
    """Keep the files, to be parsed; the ids of their documents, and what became of how many."""
    ids: set[str] = set()
    kept: Counter[Kept] = Counter()
    base = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    for path in progress.track(paths, description="reading"):
        size = path.stat().st_size
        if size > settings.limits.upload_bytes:
            raise Refusal(
                f"{path} has {size} bytes; at most {settings.limits.upload_bytes} are allowed "
                "(CHATKEEP_LIMITS_UPLOAD_BYTES)"
            )
        name = path.resolve().relative_to(base).as_posix()
        document, became = DocumentService.put(principal, dataset.id, name, path.read_bytes(), str(path))
        ids.add(document.id)
        kept[became] += 1
    return ids, kept


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
