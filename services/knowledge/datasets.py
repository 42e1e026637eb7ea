"""Datasets: the knowledge bases that chats search. What is in them is in documents.py and chunks.py."""

from collections.abc import Sequence
from typing import Any

from peewee import IntegrityError, ModelSelect, fn

from db.database import connection, dialect, transaction
from db.jsontext import clean_text
from db.models import Dataset, touched
from services.dialog_service import Page, ordered
from services.errors import InvalidArgument, InvalidData, NotFound
from services.principal import Principal, owned_by

NAME_LENGTH = 255  # characters


class DatasetService:
    """Every method takes the principal first; another tenant's dataset and an unknown one look alike."""

    @classmethod
    def create(
        cls, principal: Principal, name: str, description: str | None = None, avatar: str | None = None,
        embedding_model: str = "",
    ) -> Dataset:
        """A new, empty dataset. Raises InvalidData where the tenant has one of this name."""
        name = sound_name("dataset", name)
        with connection():
            try:
                with transaction():
                    made: Dataset = Dataset.create(
                        tenant_id=principal.tenant_id, name=name, avatar=avatar, embedding_model=embedding_model,
                        description=None if description is None else clean_text(description),
                    )
            except IntegrityError as error:
                raise InvalidData(f"there is a dataset {name!r} already; choose another name") from error
        return made

    @classmethod
    def ensure(cls, principal: Principal, name: str, embedding_model: str = "") -> Dataset:
        """The dataset of this name, made on first use."""
        try:
            return cls._named(principal, name) or cls.create(principal, name, embedding_model=embedding_model)
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
            raise no_dataset(dataset_id)
        return found

    @classmethod
    def get_by_name(cls, principal: Principal, name: str) -> Dataset:
        """The caller's dataset of this name. Raises NotFound."""
        found = cls._named(principal, name)
        if found is None:
            raise no_dataset(name)
        return found

    @classmethod
    def update(cls, principal: Principal, dataset_id: str, fields: dict[str, Any]) -> Dataset:
        """Change name, description or avatar. Raises NotFound, InvalidData where the name is taken."""
        if "name" in fields:
            fields = fields | {"name": sound_name("dataset", fields["name"])}
        with connection():
            try:
                with transaction():
                    changed = Dataset.update(fields | touched()).where(
                        owned_by(principal, Dataset), Dataset.id == clean_text(dataset_id)
                    ).execute()
            except IntegrityError as error:
                raise InvalidData(f"there is a dataset {fields['name']!r} already; choose another name") from error
        if not changed:
            raise no_dataset(dataset_id)
        return cls.get_by_id(principal, dataset_id)

    @classmethod
    def delete(cls, principal: Principal, ids: Sequence[str]) -> set[str]:
        """Erase datasets with their documents; the ids that were there. Chats that name them stay."""
        deleted: set[str] = set()
        for dataset_id in ids:
            with connection(), transaction():
                if Dataset.delete().where(  # type: ignore[misc]
                    owned_by(principal, Dataset), Dataset.id == clean_text(dataset_id)
                ).execute():
                    deleted.add(dataset_id)
        return deleted

    @classmethod
    def check(cls, principal: Principal, ids: Sequence[str], *, parsed: bool = True) -> Sequence[Dataset]:
        """These datasets. Raises InvalidData for the first id that isn't the caller's dataset, or is without
        a passage where it has to be `parsed`."""
        found = {row.id: row for row in cls.existing(principal, ids)}
        for dataset_id in ids:
            if dataset_id not in found:
                raise InvalidData(f"You don't own the dataset {dataset_id}")
            if parsed and not found[dataset_id].chunk_count:
                raise InvalidData(f"The dataset {dataset_id} doesn't own parsed file")
        return [found[dataset_id] for dataset_id in ids]

    @classmethod
    def check_embeddings(cls, principal: Principal, ids: Sequence[str]) -> None:
        """Raises InvalidData where these datasets' vectors can't be compared with one question's."""
        names = sorted({dataset.embedding_model for dataset in cls.existing(principal, ids)})
        if len(names) > 1 and "" in names:
            raise InvalidData(
                "Cannot search across datasets where some have embedding models and others do not."
            )
        if len(names) > 1:
            raise InvalidData(f"Datasets use different embedding models: {names}")

    @classmethod
    def existing(cls, principal: Principal, ids: Sequence[str]) -> Sequence[Dataset]:
        """Those of these datasets that are there and the caller's, in no order."""
        sound = [dataset_id for dataset_id in ids if dataset_id == clean_text(dataset_id)]
        with connection():
            return tuple(cls._own(principal).where(Dataset.id.in_(sound)))

    @classmethod
    def list(cls, principal: Principal) -> Sequence[Dataset]:
        """The caller's datasets by name."""
        with connection():
            return tuple(cls._own(principal).order_by(Dataset.name, Dataset.id))

    @classmethod
    def get_list(
        cls, principal: Principal, page: int = 1, page_size: int = 30, orderby: str = "create_time",
        desc: bool = True, *, id: str = "", name: str = "", keywords: str = "",
    ) -> Page:
        """One page of the caller's datasets. `id` and `name` match whole, `keywords` a part of the name."""
        query = cls._own(principal)
        if id:
            query = query.where(Dataset.id == id)
        if name:
            query = query.where(Dataset.name == name)
        if keywords:
            query = query.where(getattr(fn, dialect().find)(fn.lower(Dataset.name), keywords.lower()) > 0)
        with connection():
            return Page(list(ordered(query, Dataset, orderby, desc).paginate(page, page_size)), query.count())

    @classmethod
    def _named(cls, principal: Principal, name: str) -> Dataset | None:
        with connection():
            found: Dataset | None = cls._own(principal).where(
                Dataset.name == sound_name("dataset", name)
            ).first()
        return found

    @classmethod
    def _own(cls, principal: Principal) -> "ModelSelect[Dataset]":
        return Dataset.select().where(owned_by(principal, Dataset))


def sound_name(kind: str, name: str) -> str:
    """A name as it is kept. Raises InvalidArgument."""
    name = clean_text(name).strip()
    if not 1 <= len(name) <= NAME_LENGTH:
        raise InvalidArgument(f"a {kind}'s name has 1 to {NAME_LENGTH} characters, not {len(name)}")
    return name


def no_dataset(dataset_id: str) -> NotFound:
    return NotFound(f"there is no dataset {dataset_id!r}")


def lock_dataset(principal: Principal, dataset_id: str) -> Dataset:
    """Hold the dataset's row to the end of the transaction, so that names and counters are right.

    Raises NotFound. A write, because it locks on both engines.
    """
    condition = (owned_by(principal, Dataset), Dataset.id == clean_text(dataset_id))
    if not Dataset.update(touched()).where(*condition).execute():
        raise no_dataset(dataset_id)
    held: Dataset = Dataset.select().where(*condition).get()
    return held
