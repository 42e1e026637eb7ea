"""Parsing in the background: a document that waits is claimed under a lease, read, embedded, stored whole.

Tenants take turns, and none has two documents under way in a process: a slow one holds up its own tenant's alone.
Any process may do it. One that dies loses its leases, and another begins those documents
anew; one that broke off three times has failed. A document is stored only by the process that still holds it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import structlog

from conf.settings import IngestSettings
from db.database import TROUBLE, change, connection, fetch, retried, transaction
from db.jsontext import clean_text
from db.models import DatasetDocument, touched
from services.errors import ChatkeepError, NotFound, Unavailable
from services.knowledge.chunks import embedded, replace_chunks, words_of
from services.knowledge.datasets import DatasetService, lock_dataset
from services.knowledge.documents import DocumentService, Kept
from services.knowledge.parsing import Passage, ReaderProcesses, parse
from services.observer import Observer
from services.principal import Principal, owned_by
from services.rag.embeddings import EmbeddingModel
from services.runs.values import this_process

log = structlog.get_logger()

ATTEMPTS = 3
_AT_ONCE = 2  # documents under way in a process, each within its limits of time and memory

_CLAIM = """UPDATE {dataset_document} SET owner = %s, lease_until = {now} + %s, attempts = attempts + 1,
    began_at = coalesce(began_at, {now}), progress_msg = 'being parsed' WHERE id = (
        SELECT id FROM {dataset_document}
        WHERE run = 'RUNNING' AND (lease_until IS NULL OR lease_until < {now} OR owner = %s) AND tenant_id <> %s
        ORDER BY CASE WHEN tenant_id > %s THEN 0 ELSE 1 END, tenant_id, update_time, id LIMIT 1{skip_locked})
    RETURNING id"""
_WAITING = "SELECT count(*) FROM {dataset_document} WHERE run = 'RUNNING' " \
           "AND (lease_until IS NULL OR lease_until < {now})"
_RENEW = "UPDATE {dataset_document} SET lease_until = {now} + %s WHERE run = 'RUNNING' AND owner = %s"
_RELEASE = "UPDATE {dataset_document} SET owner = NULL, lease_until = NULL, attempts = attempts - 1 " \
           "WHERE run = 'RUNNING' AND owner = %s"
_POSTPONE = _RELEASE + " AND id = %s"
_PROGRESS = "UPDATE {dataset_document} SET progress = %s WHERE id = %s AND run = 'RUNNING' AND owner = %s"
_END = """UPDATE {dataset_document} SET run = %s, progress = %s, progress_msg = %s, owner = NULL, lease_until = NULL,
    duration = {now} - coalesce(began_at, {now}) WHERE id = %s AND run = 'RUNNING' AND owner = %s"""


class Parsed(StrEnum):
    """How parsing a document ended in this process."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # it was cancelled, replaced, deleted or taken over meanwhile
    POSTPONED = "postponed"  # nothing can be read now


class Lost(Exception):
    """The document isn't this process's any more: cancelled, replaced, deleted, or taken over."""


class Ingestion:
    """Parses documents until it is closed: two threads that work, one that keeps their leases.

    `embedding` finds the model that a dataset's vectors are made with, by its name; None where there is none.
    """

    def __init__(
        self, settings: IngestSettings, embedding: Callable[[str], EmbeddingModel | None],
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings
        self.waiting = 0  # documents of all processes that nobody parses, when the leases were renewed last
        self._observer = observer or Observer()
        self.owner = f"{this_process()}:{id(self):x}"
        self._embedding = embedding
        self._served = ""  # the tenant of the last document: the next one is another's, so that none waits for all
        self._tenants: set[str] = set()  # whose documents are parsed now
        self._claiming = threading.Lock()
        self._readers = ReaderProcesses(most=_AT_ONCE)
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._workers = [self._new_worker() for _ in range(_AT_ONCE)]
        self._keeper = threading.Thread(target=self._keep, name="ingestion-keeper", daemon=True)

    def open(self) -> None:
        for thread in (*self._workers, self._keeper):
            thread.start()

    def wake(self) -> None:
        """A document waits."""
        self._woken.set()

    def close(self) -> None:
        """Stop, and leave to others what is under way."""
        self._stopped.set()
        self._woken.set()
        deadline = time.monotonic() + 5
        for thread in (self._keeper, *self._workers):
            if thread.is_alive():
                thread.join(max(deadline - time.monotonic(), 0))
        self._readers.close()

    def step(self) -> str | None:
        """Parse one document that waits, to its end; its id, or None where none waits."""
        document = self._claim()
        if document is None:
            return None
        try:
            self._finish(document)
        finally:
            with self._claiming:
                self._tenants.remove(document.tenant_id)
        return str(document.id)

    def _claim(self) -> DatasetDocument | None:
        """A document that waits, of a tenant of whom none is under way here."""
        with self._claiming:
            other = next(iter(self._tenants), "")
            with connection(), transaction():
                # what is ours and not the other worker's is left from a step that met trouble: its lease is kept
                # and would never run out
                rows = fetch(_CLAIM, [self.owner, self.settings.lease, self.owner, other, self._served])
                document = DatasetDocument.get_by_id(rows[0][0]) if rows else None
            if document is not None:
                self._served = document.tenant_id
                self._tenants.add(document.tenant_id)
        return document

    def _finish(self, document: DatasetDocument) -> None:
        """Parse a claimed document to its end, and tell it."""
        if document.attempts > 1:
            self._observer.document_lease_lost()
        try:
            result = self._parse(document)
        except Lost:
            log.info("a document was taken away while it was parsed", document_id=document.id)
            result = Parsed.LOST
        self._observer.document_ended(result)

    def _parse(self, document: DatasetDocument) -> Parsed:
        if document.attempts > ATTEMPTS:
            self._end(document, "FAIL", -1.0, f"parsing it broke off {ATTEMPTS} times; it isn't tried again")
            return Parsed.FAILED
        owner = Principal(document.tenant_id)
        try:
            passages = self._readers.read(
                document.name, DocumentService.content(owner, document), seconds=self.settings.parse_seconds,
                megabytes=self.settings.parse_megabytes,
            )
            vectors = self._embed(document, passages)
            words = words_of(passages)
            retried(lambda: self._store(document, passages, words, vectors))
            return Parsed.DONE
        except Unavailable as error:
            log.warning("documents wait: none can be read now", reason=error.message)
            self._with_connection(_POSTPONE, [self.owner, document.id])
            self._stopped.wait(self.settings.poll)
            return Parsed.POSTPONED
        except ChatkeepError as error:
            log.info("a document could not be parsed", document_id=document.id, reason=error.message)
            self._end(document, "FAIL", -1.0, error.message)
            return Parsed.FAILED

    def _embed(self, document: DatasetDocument, passages: Sequence[Passage]) -> list[bytes] | None:
        dataset = DatasetService.get_by_id(Principal(document.tenant_id), document.dataset_id)
        if not dataset.embedding_model:
            return None
        model = self._embedding(dataset.embedding_model)
        if model is None:
            raise NotFound(f"the embedding model {dataset.embedding_model!r} of this dataset isn't set up")

        def told(count: int) -> None:
            with connection():
                if not change(_PROGRESS, [count / (len(passages) + 1), document.id, self.owner]):
                    raise Lost

        return embedded(passages, model, told)

    def _store(
        self, document: DatasetDocument, passages: Sequence[Passage], words: Sequence[str],
        vectors: Sequence[bytes] | None,
    ) -> None:
        with connection(), transaction():
            lock_dataset(Principal(document.tenant_id), document.dataset_id)
            self._end(document, "DONE", 1.0, "" if passages else "no text was found in it")
            replace_chunks(document, passages, words, vectors)

    def _end(self, document: DatasetDocument, run: str, progress: float, message: str) -> None:
        with connection():
            if not change(_END, [run, progress, message, document.id, self.owner]):
                raise Lost

    def _new_worker(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="ingestion", daemon=True)

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                if self.step() is None:
                    self._woken.wait(self.settings.poll)
                    self._woken.clear()
            except TROUBLE:
                log.warning("the database does not answer; documents wait for it", exc_info=True)
                self._stopped.wait(self.settings.poll)

    def _keep(self) -> None:
        """Renew the leases; a worker that died of a bug is begun anew, and its document's attempts are counted."""
        while not self._stopped.wait(self.settings.lease / 3):
            for place, worker in enumerate(self._workers):
                if not worker.is_alive():
                    self._workers[place] = self._new_worker()
                    self._workers[place].start()
            self._with_connection(_RENEW, [self.settings.lease, self.owner])
            self._count()
        self._with_connection(_RELEASE, [self.owner])

    def _count(self) -> None:
        """How many wait is told without asking the database again."""
        with suppress(*TROUBLE), connection():
            [(self.waiting,)] = fetch(_WAITING)

    def _with_connection(self, statement: str, parameters: Sequence[Any]) -> None:
        try:
            with connection():
                change(statement, parameters)
        except TROUBLE:
            log.warning("the database does not answer; leases of documents run out", exc_info=True)


def add_text(
    principal: Principal, dataset_id: str, name: str, text: str, location: str | None = None,
    embedding: EmbeddingModel | None = None,
) -> bool:
    """Put a text into a dataset under its name, parsed at once; whether that changed anything. Raises NotFound."""
    name, text = clean_text(name), clean_text(text)
    passages = parse(name, text)
    words, vectors = words_of(passages), embedded(passages, embedding) if embedding else None
    with connection(), transaction():
        document, kept = DocumentService.put(principal, dataset_id, name, text.encode(), location)
        if kept is Kept.AS_IT_WAS:
            return False
        replace_chunks(document, passages, words, vectors)
        DatasetDocument.update(run="DONE", progress=1.0, progress_msg="", **touched()).where(
            owned_by(principal, DatasetDocument), DatasetDocument.id == document.id
        ).execute()
    return True
