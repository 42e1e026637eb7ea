"""Chats: a dialog row holds the model, the prompt and the datasets that its sessions are answered with."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peewee import IntegrityError, fn

from db.database import connection, dialect, transaction
from db.models import Dataset, Dialog, touched
from services.errors import InvalidArgument, InvalidData, NotOwned
from services.principal import Principal, owned_by

DEFAULT_PROLOGUE = "Hi! I'm your assistant. What can I do for you?"
DEFAULT_EMPTY_RESPONSE = "Sorry! No relevant content was found in the knowledge base!"
DEFAULT_SYSTEM = """You are a careful assistant. Answer the question from the knowledge below, in the \
question's language. Say so when the knowledge doesn't hold the answer, and take the conversation so \
far into account. Here is the knowledge base:
{knowledge}
The above is the knowledge base."""

ORDER_FIELDS = ("create_time", "update_time", "name")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, and how many rows there are over all pages."""

    rows: list[Any]
    total: int


def name_key(name: str) -> str:
    """What makes two chat names the same: trimmed, NFC, without case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name.strip()).casefold())


class DialogService:
    """Every method takes the principal first; another tenant's chat and an unknown one look alike."""

    @classmethod
    def create(cls, principal: Principal, fields: Mapping[str, Any]) -> Dialog:
        """Insert a chat. Raises InvalidData where the tenant has a chat of this name."""
        columns = dict(fields)
        columns["name"] = columns["name"].strip()
        with connection():
            try:
                made = Dialog.create(
                    **columns, tenant_id=principal.tenant_id, name_key=name_key(columns["name"])
                )
            except IntegrityError as error:
                raise InvalidData("duplicated chat name in creating chat") from error
        return cls.get_by_id(principal, made.id)

    @classmethod
    def get_by_id(cls, principal: Principal, dialog_id: str) -> Dialog:
        """A valid chat of the caller's. Raises NotOwned."""
        with connection():
            dialog: Dialog | None = cls._valid(principal).where(Dialog.id == dialog_id).first()
        if dialog is None:
            raise NotOwned("no authorization")
        return dialog

    @classmethod
    def find(cls, principal: Principal, id_or_name: str) -> Dialog | None:
        """A valid chat of the caller's by its id or its name; an id goes before another chat's name."""
        query = cls._valid(principal).where(
            (Dialog.id == id_or_name) | (Dialog.name_key == name_key(id_or_name))
        )
        with connection():
            found = sorted(query, key=lambda dialog: dialog.id != id_or_name)
        return found[0] if found else None

    @classmethod
    def get_list(
        cls, principal: Principal, page: int = 1, page_size: int = 30, orderby: str = "create_time",
        desc: bool = True, *, id: str = "", name: str = "", keywords: str = "",
    ) -> Page:
        """The caller's valid chats. `id` and `name` match whole, `keywords` a part of the name."""
        query = cls._valid(principal)
        if id:
            query = query.where(Dialog.id == id)
        if name:
            query = query.where(Dialog.name_key == name_key(name))
        if keywords and not id and not name:
            query = query.where(getattr(fn, dialect().find)(Dialog.name_key, name_key(keywords)) > 0)
        with connection():
            total = query.count()
            rows = list(ordered(query, Dialog, orderby, desc).paginate(page, page_size))
        return Page(rows, total)

    @classmethod
    def update_by_id(cls, principal: Principal, dialog_id: str, fields: Mapping[str, Any]) -> Dialog:
        """Change columns of a valid chat. Raises NotOwned, and InvalidData for a name that is taken."""
        columns = dict(fields) | touched()
        if "name" in columns:
            columns["name"] = columns["name"].strip()
            columns["name_key"] = name_key(columns["name"])
        with connection():
            try:
                changed = Dialog.update(columns).where(
                    owned_by(principal, Dialog), Dialog.status == "1", Dialog.id == dialog_id
                ).execute()
            except IntegrityError as error:
                raise InvalidData("duplicated chat name") from error
        if not changed:
            raise NotOwned("no authorization")
        return cls.get_by_id(principal, dialog_id)

    @classmethod
    def delete(cls, principal: Principal, ids: Sequence[str]) -> set[str]:
        """Mark chats as deleted; the ids that were valid. Their sessions stay until they are pruned."""
        deleted: set[str] = set()
        with connection(), transaction():
            for dialog_id in ids:
                if Dialog.update(status="0", **touched()).where(
                    owned_by(principal, Dialog), Dialog.status == "1", Dialog.id == dialog_id
                ).execute():
                    deleted.add(dialog_id)
        return deleted

    @classmethod
    def ids(cls, principal: Principal) -> list[str]:
        """Every valid chat of the caller's."""
        with connection():
            return [dialog.id for dialog in cls._valid(principal, Dialog.id)]

    @classmethod
    def names(cls, principal: Principal) -> list[Dialog]:
        """Every valid chat of the caller's, newest first: its id, name and time of creation only."""
        query = cls._valid(principal, Dialog.id, Dialog.name, Dialog.create_time)
        with connection():
            return list(ordered(query, Dialog, "create_time", desc=True))

    @classmethod
    def datasets_of(cls, principal: Principal, dialogs: Sequence[Dialog]) -> dict[str, str]:
        """Names by id of the datasets that these chats use and that still exist."""
        wanted = {dataset_id for dialog in dialogs for dataset_id in dialog.kb_ids}
        if not wanted:
            return {}
        with connection():
            rows = Dataset.select(Dataset.id, Dataset.name).where(
                owned_by(principal, Dataset), Dataset.id.in_(list(wanted))
            )
            return {row.id: row.name for row in rows}

    @classmethod
    def _valid(cls, principal: Principal, *columns: Any) -> Any:
        return Dialog.select(*columns).where(owned_by(principal, Dialog), Dialog.status == "1")


def ordered(query: Any, row: Any, orderby: str, desc: bool) -> Any:
    """The query in one of ORDER_FIELDS' orders; the id follows, so that ties have an order too."""
    if orderby not in ORDER_FIELDS:
        raise InvalidArgument(f"invalid orderby field: {orderby}")
    fields = [getattr(row, orderby), row.id]
    return query.order_by(*(field.desc() if desc else field.asc() for field in fields))
