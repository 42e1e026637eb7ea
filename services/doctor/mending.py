"""The safe mends: what can be made anew from what is there, and rows that nothing leads to. Nothing that anybody
said is changed; what isn't mended stays a finding."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from db.database import connection
from db.document import API4_CONVERSATIONS, CONVERSATIONS, DocumentMissing, DocumentTooNew, PagedDocument
from services.doctor import datasets, leftovers, sessions
from services.doctor.finding import Finding
from services.principal import Principal, owned_by
from services.runs.recovery import recover

_SYSTEM = Principal.system()


def mend(findings: Sequence[Finding]) -> None:
    """Mend of these what can be mended; whoever wants to know what was examines again."""
    checks = {finding.check for finding in findings}
    if "orphans" in checks:
        leftovers.erase_orphans()
        datasets.erase_orphans()
    for id in _ids(findings, sessions.RECOUNTED):
        _in_its_table(id, PagedDocument.recount)
    for id in _ids(findings, sessions.REINDEXED):
        _in_its_table(id, PagedDocument.reindex)
    for id in _ids(findings, datasets.RECOUNTED):
        datasets.recount(id)
    if "runs" in checks:
        recover(_SYSTEM)


def _ids(findings: Sequence[Finding], checks: Collection[str]) -> list[str]:
    return sorted({finding.id for finding in findings if finding.check in checks})


def _in_its_table(id: str, work: Callable[[PagedDocument, str, str], Any]) -> None:
    for document in (CONVERSATIONS, API4_CONVERSATIONS):
        row = document.row
        with connection():
            found = row.select(row.tenant_id).where(owned_by(_SYSTEM, row), row.id == id).first()
            if found is None:
                continue
            with suppress(DocumentMissing, DocumentTooNew):  # deleted meanwhile, or a newer release's
                work(document, found.tenant_id, id)
