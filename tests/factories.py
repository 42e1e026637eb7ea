"""Rows for tests, made through `model.create`; what a test doesn't say doesn't matter to it."""

from typing import Any, Generic, TypeVar

import factory

from db.ids import new_id
from db.models import API4Conversation, Conversation, Dialog, Tenant
from services.dialog_service import name_key

Row = TypeVar("Row")


class RowFactory(factory.Factory, Generic[Row]):
    class Meta:
        abstract = True

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **columns: Any) -> Row:
        return model_class.create(**columns)


class TenantFactory(RowFactory[Tenant]):
    class Meta:
        model = Tenant

    id = factory.LazyFunction(new_id)
    name = factory.Sequence(lambda n: f"tenant {n} {new_id()}")


class DialogFactory(RowFactory[Dialog]):
    class Meta:
        model = Dialog

    id = factory.LazyFunction(new_id)
    tenant_id = factory.LazyFunction(new_id)
    name = factory.Sequence(lambda n: f"chat {n}")
    name_key = factory.LazyAttribute(lambda row: name_key(row.name))
    llm_id = "default"
    prompt_config = factory.LazyFunction(lambda: {"system": "Be kind.", "prologue": "Hi!"})


class ConversationFactory(RowFactory[Conversation]):
    """A session as this system writes it; `legacy=True` is a row as RAGFlow left it."""

    class Meta:
        model = Conversation

    class Params:
        legacy = factory.Trait(format=0, next_seq=0)

    id = factory.LazyFunction(new_id)
    tenant_id = factory.LazyFunction(new_id)
    dialog_id = factory.LazyFunction(new_id)
    name = factory.Sequence(lambda n: f"session {n}")


class API4ConversationFactory(ConversationFactory):
    class Meta:
        model = API4Conversation
