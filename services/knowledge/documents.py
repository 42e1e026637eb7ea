"""Documents: the files of a dataset, from their arrival over parsing to their end.

A file that is there already under its name changes nothing; another one replaces it under the same id, so
that citations of it still lead somewhere; its passages stay until those of the new one are there.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any

from peewee import ModelSelect, fn

from db.database import connection, dialect, transaction
from db.jsontext import clean, clean_text
from db.models import Dataset, DatasetChunk, DatasetDocument, DatasetFile, touched
from services.dialog_service import Page, ordered
from services.errors import InvalidArgument, NotFound
from services.knowledge.datasets import DatasetService, lock_dataset, sound_name
from services.principal import Principal, owned_by

WAITING = {
    "run": "RUNNING", "progress": 0.0, "progress_msg": "waiting to be parsed", "owner": None, "lease_until": None,
    "attempts": 0, "began_at": None, "duration": 0.0,
}
UNSTARTED = WAITING | {"run": "UNSTART", "progress_msg": ""}
CANCELLED = {"run": "CANCEL", "progress_msg": "cancelled", "owner": None, "lease_until": None}


class Kept(Enum):
    """What became of a file under its name."""

    AS_IT_WAS = "as it was"
    ADDED = "added"
    CHANGED = "changed"


class DocumentService:
    """Every method takes the principal and a dataset first. Raises NotFound for one that isn't the caller's."""

    @classmethod
    def put(
        cls, principal: Principal, dataset_id: str, name: str, content: bytes, location: str | None = None,
        *, parse: bool = True,
    ) -> tuple[DatasetDocument, Kept]:
        """Keep a file under its name, to be parsed now or when it is asked for; what became of it."""
        source = _source(name, content, location)
        same = cls._named(principal, DatasetService.get_by_id(principal, dataset_id).id, source["name"])
        if same is not None and _is_same(same, source["digest"]):
            return same, Kept.AS_IT_WAS
        with connection(), transaction():
            dataset = lock_dataset(principal, dataset_id)
            return cls._keep(principal, dataset, source, content, WAITING if parse else UNSTARTED)

    @classmethod
    def put_all(
        cls, principal: Principal, dataset_id: str, files: Sequence[tuple[str, bytes]]
    ) -> Sequence[DatasetDocument]:
        """Keep files under their names, all in one commit or none, to be parsed when that is asked for.

        Raises InvalidArgument where two have the same name: one of them would be lost.
        """
        sources = [_source(name, content) for name, content in files]
        taken = Counter(source["name"] for source in sources)
        twice = next((name for name, count in taken.items() if count > 1), None)
        if twice is not None:
            raise InvalidArgument(f"{taken[twice]} of these files are named {twice!r}; a dataset has one of a name")
        with connection(), transaction():
            dataset = lock_dataset(principal, dataset_id)
            return [
                cls._keep(principal, dataset, source, content, UNSTARTED)[0]
                for source, (_, content) in zip(sources, files, strict=True)
            ]

    @classmethod
    def _keep(
        cls, principal: Principal, dataset: Dataset, source: dict[str, Any], content: bytes, state: dict[str, Any]
    ) -> tuple[DatasetDocument, Kept]:
        """The same on a dataset that is held."""
        found = cls._named(principal, dataset.id, source["name"])
        if found is not None and _is_same(found, source["digest"]):
            return found, Kept.AS_IT_WAS
        kept = Kept.ADDED if found is None else Kept.CHANGED
        if found is None:
            found = DatasetDocument.create(tenant_id=principal.tenant_id, dataset_id=dataset.id, **source, **state)
            _count_documents(dataset, 1)
        else:
            _change(principal, [found.id], source | state)
            DatasetFile.delete().where(DatasetFile.document_id == found.id).execute()  # type: ignore[misc]
        DatasetFile.create(document_id=found.id, content=content)
        return cls._own(principal, dataset.id).where(DatasetDocument.id == found.id).get(), kept

    @classmethod
    def get(cls, principal: Principal, dataset_id: str, document_id: str) -> DatasetDocument:
        """One document."""
        dataset = DatasetService.get_by_id(principal, dataset_id)
        with connection():
            found: DatasetDocument | None = cls._own(principal, dataset.id).where(
                DatasetDocument.id == clean_text(document_id)
            ).first()
        if found is None:
            raise NotFound(f"the dataset {dataset.id} has no document {document_id!r}")
        return found

    @classmethod
    def all(cls, principal: Principal, dataset_id: str) -> Sequence[DatasetDocument]:
        """A dataset's documents by name."""
        dataset = DatasetService.get_by_id(principal, dataset_id)
        with connection():
            query = cls._own(principal, dataset.id)
            return tuple(query.order_by(DatasetDocument.name, DatasetDocument.id))

    @classmethod
    def get_list(
        cls, principal: Principal, dataset_id: str, page: int = 1, page_size: int = 30,
        orderby: str = "create_time", desc: bool = True, *, ids: Sequence[str] = (), name: str = "",
        keywords: str = "", runs: Sequence[str] = (), since: int = 0, until: int = 0,
    ) -> Page:
        """One page of a dataset's documents. `since` and `until` are creation times in epoch milliseconds."""
        dataset = DatasetService.get_by_id(principal, dataset_id)
        query = cls._own(principal, dataset.id)
        if ids:
            query = query.where(DatasetDocument.id.in_(list(ids)))
        if name:
            query = query.where(DatasetDocument.name == name)
        if keywords:
            query = query.where(getattr(fn, dialect().find)(fn.lower(DatasetDocument.name), keywords.lower()) > 0)
        if runs:
            query = query.where(DatasetDocument.run.in_(list(runs)))
        if since:
            query = query.where(DatasetDocument.create_time >= since)
        if until:
            query = query.where(DatasetDocument.create_time <= until)
        with connection():
            return Page(list(ordered(query, DatasetDocument, orderby, desc).paginate(page, page_size)), query.count())

    @classmethod
    def content(cls, principal: Principal, document: DatasetDocument) -> bytes:
        """A document's file as it came. Raises NotFound where there is none: it was added before files were kept."""
        with connection():
            found = DatasetFile.select().join(
                DatasetDocument, on=(DatasetDocument.id == DatasetFile.document_id)
            ).where(owned_by(principal, DatasetDocument), DatasetFile.document_id == document.id).first()
        if found is None:
            raise NotFound(f"the document {document.id} has no file; upload it as {document.name!r}")
        return bytes(found.content)

    @classmethod
    def update(
        cls, principal: Principal, dataset_id: str, document_id: str, fields: dict[str, Any]
    ) -> DatasetDocument:
        """Change name, `meta_fields`, or with `enabled` whether its passages are found, now and after a parsing.

        Raises InvalidArgument where the name is taken.
        """
        columns = clean(dict(fields))
        with connection(), transaction():
            dataset = lock_dataset(principal, dataset_id)
            document = cls.get(principal, dataset.id, document_id)
            if "name" in columns:
                columns["name"] = sound_name("document", columns["name"])
                taken = cls._own(principal, dataset.id).where(
                    DatasetDocument.name == columns["name"], DatasetDocument.id != document.id
                )
                if taken.exists():
                    raise InvalidArgument(f"the dataset has another document {columns['name']!r}")
            if columns.get("enabled", document.enabled) != document.enabled:  # single passages may be off by themselves
                DatasetChunk.update(available=columns["enabled"]).where(
                    owned_by(principal, DatasetChunk), DatasetChunk.document_id == document.id
                ).execute()
            _change(principal, [document.id], columns)
        return cls.get(principal, dataset_id, document_id)

    @classmethod
    def delete(cls, principal: Principal, dataset_id: str, ids: Sequence[str]) -> set[str]:
        """Take documents out of a dataset, with their passages; the ids that were there."""
        with connection(), transaction():
            dataset = lock_dataset(principal, dataset_id)
            found = list(cls._own(principal, dataset.id).where(DatasetDocument.id.in_(_sound(ids))))
            DatasetDocument.delete().where(  # type: ignore[misc]
                owned_by(principal, DatasetDocument), DatasetDocument.id.in_([row.id for row in found])
            ).execute()
            _count_documents(dataset, -len(found), -sum(row.chunk_count for row in found))
        return {row.id for row in found}

    @classmethod
    def ids(cls, principal: Principal, dataset_id: str) -> list[str]:
        """Every document's id."""
        return [row.id for row in cls.all(principal, dataset_id)]

    @classmethod
    def start(cls, principal: Principal, dataset_id: str, ids: Sequence[str]) -> set[str]:
        """Have documents parsed, again where they were; the ids that are there. One under way goes on."""
        return cls._turn(principal, dataset_id, ids, WAITING, idle=True)

    @classmethod
    def stop(cls, principal: Principal, dataset_id: str, ids: Sequence[str]) -> set[str]:
        """Cancel the parsing of documents; the ids that are there. One that isn't being parsed stays as it is."""
        return cls._turn(principal, dataset_id, ids, CANCELLED, idle=False)

    @classmethod
    def _turn(
        cls, principal: Principal, dataset_id: str, ids: Sequence[str], state: dict[str, Any], *, idle: bool
    ) -> set[str]:
        with connection(), transaction():
            dataset = lock_dataset(principal, dataset_id)
            found = list(cls._own(principal, dataset.id).where(DatasetDocument.id.in_(_sound(ids))))
            _change(principal, [row.id for row in found if (row.run != "RUNNING") is idle], state)
        return {row.id for row in found}

    @classmethod
    def _named(cls, principal: Principal, dataset_id: str, name: str) -> DatasetDocument | None:
        with connection():
            found: DatasetDocument | None = cls._own(principal, dataset_id).where(
                DatasetDocument.name == name
            ).first()
        return found

    @classmethod
    def _own(cls, principal: Principal, dataset_id: str) -> "ModelSelect[DatasetDocument]":
        return DatasetDocument.select().where(
            owned_by(principal, DatasetDocument), DatasetDocument.dataset_id == dataset_id
        )


def _source(name: str, content: bytes, location: str | None = None) -> dict[str, Any]:
    """What a document's row says of its file. Raises InvalidArgument."""
    return {
        "name": sound_name("document", name), "digest": hashlib.sha256(content).hexdigest(), "size": len(content),
        "location": None if location is None else clean_text(location),
    }


def _is_same(document: DatasetDocument, digest: str) -> bool:
    return document.digest == digest and document.run in ("DONE", "RUNNING")


def _sound(ids: Sequence[str]) -> list[str]:
    return [id for id in ids if id == clean_text(id)]


def _change(principal: Principal, ids: Sequence[str], columns: dict[str, Any]) -> None:
    DatasetDocument.update(columns | touched()).where(
        owned_by(principal, DatasetDocument), DatasetDocument.id.in_(list(ids))
    ).execute()


def _count_documents(dataset: Dataset, documents: int, chunks: int = 0) -> None:
    Dataset.update(
        document_count=Dataset.document_count + documents, chunk_count=Dataset.chunk_count + chunks,
    ).where(owned_by(Principal(dataset.tenant_id), Dataset), Dataset.id == dataset.id).execute()
