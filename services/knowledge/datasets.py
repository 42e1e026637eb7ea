"""Datasets: the texts that chats search. A document, its passages and both counters change in one commit.

A text that is already there under its name changes nothing; another text under that name replaces it.
"""

import hashlib
from collections.abc import Sequence

from peewee import IntegrityError, ModelSelect

from db.database import connection, transaction
from db.jsontext import clean_text
from db.models import Dataset, DatasetChunk, DatasetDocument, touched
from db.text_index import search_text
from services.errors import InvalidArgument, InvalidData, NotFound
from services.knowledge.parsing import Passage, parse
from services.principal import Principal, owned_by

NAME_LENGTH = 255  # characters
_BATCH = 200  # chunks an INSERT


class DatasetService:
    """Every method takes the principal first; another tenant's dataset and an unknown one look alike."""

    @classmethod
    def create(cls, principal: Principal, name: str, description: str | None = None) -> Dataset:
        """A new, empty dataset. Raises InvalidData where the tenant has one of this name."""
        name = _sound_name("dataset", name)
        with connection():
            try:
                with transaction():
                    made: Dataset = Dataset.create(
                        tenant_id=principal.tenant_id, name=name,
                        description=None if description is None else clean_text(description),
                    )
            except IntegrityError as error:
                raise InvalidData(f"there is a dataset {name!r} already; choose another name") from error
        return made

    @classmethod
    def ensure(cls, principal: Principal, name: str) -> Dataset:
        """The dataset of this name, made on first use."""
        try:
            return cls._named(principal, name) or cls.create(principal, name)
        except InvalidData:
            found = cls._named(principal, name)  # another process made it between the two
            if found is None:
                raise
            return found

    @classmethod
    def get_by_id(cls, principal: Principal, dataset_id: str) -> Dataset:
        """One dataset of the caller's. Raises NotFound."""
        with connection():
            found: Dataset | None = cls._own(principal).where(Dataset.id == clean_text(dataset_id)).first()
        if found is None:
            raise _no_dataset(dataset_id)
        return found

    @classmethod
    def delete(cls, principal: Principal, dataset_id: str) -> None:
        """Erase a dataset with its documents. Raises NotFound. Chats that name it stay."""
        with connection(), transaction():
            deleted = Dataset.delete().where(  # type: ignore[misc]
                owned_by(principal, Dataset), Dataset.id == clean_text(dataset_id)
            ).execute()
        if not deleted:
            raise _no_dataset(dataset_id)

    @classmethod
    def documents(cls, principal: Principal, dataset_id: str) -> Sequence[DatasetDocument]:
        """A dataset's documents by name. Raises NotFound."""
        dataset = cls.get_by_id(principal, dataset_id)
        with connection():
            return tuple(
                _documents(principal, dataset.id).order_by(DatasetDocument.name, DatasetDocument.id)
            )

    @classmethod
    def add_text(
        cls, principal: Principal, dataset_id: str, name: str, text: str, location: str | None = None
    ) -> bool:
        """Put a text into a dataset under its name; whether that changed anything. Raises NotFound."""
        dataset = cls.get_by_id(principal, dataset_id)
        name, text = _sound_name("document", name), clean_text(text)
        content = text.encode()
        source = {
            "name": name, "digest": hashlib.sha256(content).hexdigest(), "size": len(content),
            "location": None if location is None else clean_text(location), "run": "DONE", "progress": 1.0,
        }
        with connection():
            if _holds(principal, dataset.id, source):
                return False
        passages = parse(name, text)
        with connection(), transaction():
            _lock(principal, dataset.id)
            if _holds(principal, dataset.id, source):
                return False
            _store(principal, dataset.id, source, passages)
        return True

    @classmethod
    def delete_document(cls, principal: Principal, dataset_id: str, document_id: str) -> None:
        """Take a document out of a dataset, with its passages. Raises NotFound."""
        dataset = cls.get_by_id(principal, dataset_id)
        with connection(), transaction():
            _lock(principal, dataset.id)
            own = _documents(principal, dataset.id)
            found = own.where(DatasetDocument.id == clean_text(document_id)).first()
            if found is None:
                raise NotFound(f"the dataset {dataset.id} has no document {document_id!r}")
            found.delete_instance()
            _count(principal, dataset.id, documents=-1, chunks=-found.chunk_count)

    @classmethod
    def check(cls, principal: Principal, ids: Sequence[str]) -> None:
        """Raises InvalidData for the first id that isn't the caller's dataset, or whose dataset is empty."""
        sound = [dataset_id for dataset_id in ids if dataset_id == clean_text(dataset_id)]
        with connection():
            counts = {row.id: row.chunk_count for row in cls._own(principal).where(Dataset.id.in_(sound))}
        for dataset_id in ids:
            if dataset_id not in counts:
                raise InvalidData(f"You don't own the dataset {dataset_id}")
            if not counts[dataset_id]:
                raise InvalidData(f"The dataset {dataset_id} doesn't own parsed file")

    @classmethod
    def list(cls, principal: Principal) -> Sequence[Dataset]:
        """The caller's datasets by name."""
        with connection():
            return tuple(cls._own(principal).order_by(Dataset.name, Dataset.id))

    @classmethod
    def _named(cls, principal: Principal, name: str) -> Dataset | None:
        with connection():
            found: Dataset | None = cls._own(principal).where(
                Dataset.name == _sound_name("dataset", name)
            ).first()
        return found

    @classmethod
    def _own(cls, principal: Principal) -> "ModelSelect[Dataset]":
        return Dataset.select().where(owned_by(principal, Dataset))


def _sound_name(kind: str, name: str) -> str:
    name = clean_text(name).strip()
    if not 1 <= len(name) <= NAME_LENGTH:
        raise InvalidArgument(f"a {kind}'s name has 1 to {NAME_LENGTH} characters, not {len(name)}")
    return name


def _no_dataset(dataset_id: str) -> NotFound:
    return NotFound(f"there is no dataset {dataset_id!r}")


def _lock(principal: Principal, dataset_id: str) -> None:
    """Hold the dataset's row to the end of the transaction, so that a name is given once.

    Raises NotFound. A write, because it locks on both engines.
    """
    if not Dataset.update(touched()).where(owned_by(principal, Dataset), Dataset.id == dataset_id).execute():
        raise _no_dataset(dataset_id)


def _documents(principal: Principal, dataset_id: str) -> "ModelSelect[DatasetDocument]":
    return DatasetDocument.select().where(
        owned_by(principal, DatasetDocument), DatasetDocument.dataset_id == dataset_id
    )


def _holds(principal: Principal, dataset_id: str, source: dict[str, object]) -> bool:
    return bool(_documents(principal, dataset_id).where(
        DatasetDocument.name == source["name"], DatasetDocument.digest == source["digest"]
    ).exists())


def _store(
    principal: Principal, dataset_id: str, source: dict[str, object], passages: Sequence[Passage]
) -> None:
    """A document that is replaced keeps its id, so that citations of it still lead somewhere."""
    before = _documents(principal, dataset_id).where(DatasetDocument.name == source["name"]).first()
    document = before or DatasetDocument.create(
        tenant_id=principal.tenant_id, dataset_id=dataset_id, **source
    )
    chunks_before = document.chunk_count
    if before is not None:
        DatasetChunk.delete().where(  # type: ignore[misc]
            owned_by(principal, DatasetChunk), DatasetChunk.document_id == document.id
        ).execute()
    DatasetDocument.update(source | touched() | {"chunk_count": len(passages)}).where(
        owned_by(principal, DatasetDocument), DatasetDocument.id == document.id
    ).execute()
    _insert(document, passages)
    _count(principal, dataset_id, documents=0 if before else 1, chunks=len(passages) - chunks_before)


def _insert(document: DatasetDocument, passages: Sequence[Passage]) -> None:
    for begin in range(0, len(passages), _BATCH):
        DatasetChunk.insert_many([
            {
                "tenant_id": document.tenant_id, "dataset_id": document.dataset_id,
                "document_id": document.id, "chunk_index": index, "content": passage.content,
                "heading": passage.heading,
                "search_text": search_text(f"{passage.heading}\n{passage.content}"),
            }
            for index, passage in enumerate(passages[begin : begin + _BATCH], begin)
        ]).execute()


def _count(principal: Principal, dataset_id: str, *, documents: int, chunks: int) -> None:
    Dataset.update(
        document_count=Dataset.document_count + documents, chunk_count=Dataset.chunk_count + chunks,
    ).where(owned_by(principal, Dataset), Dataset.id == dataset_id).execute()
