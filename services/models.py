"""The models that the operator set up, by name. A tenant's request names one, it never makes one."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from conf.settings import Settings
from services.rag.chat_models import ChatModel, ExtractiveChatModel, OpenAIChatModel
from services.rag.embeddings import EmbeddingModel, OpenAIEmbeddingModel
from services.rag.reranking import HTTPRerankModel, RerankModel

DEFAULT = "default"
Model = TypeVar("Model")


class ModelType(StrEnum):
    CHAT = "chat"
    EMBEDDING = "embedding"
    RERANK = "rerank"


def model_id(name: str) -> str:
    """The tenant's id of a model (`tenant_llm_id` and its like): 32 hex characters, resolved at each turn."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ModelEntry(Generic[Model]):
    """A model, what clients call it, and the id that its server knows."""

    name: str
    model: Model
    upstream: str = ""


class Shelf(Generic[Model]):
    """The models of one type. Each has a name of its own; upstream ids may be shared, then the first is meant."""

    def __init__(self, entries: Sequence[ModelEntry[Model]] = ()) -> None:
        names = {entry.name: entry for entry in reversed(entries)}
        upstream = {entry.upstream: entry for entry in reversed(entries) if entry.upstream}
        known = upstream | names  # a name wins over an upstream id
        self._entries = list(entries)
        self._ids = {model_id(name): entry for name, entry in known.items()}
        self._known = self._ids | known

    def __iter__(self) -> Iterator[ModelEntry[Model]]:
        return iter(self._entries)

    def entry(self, key: str) -> ModelEntry[Model] | None:
        """The model of this name, upstream id, or tenant's id of either; None where there is none."""
        return self._known.get(key)

    def find(self, key: str) -> Model | None:
        found = self.entry(key)
        return found.model if found else None

    def id_of(self, key: str) -> str:
        """The tenant's id that goes with a name; an id stays as it is."""
        return key if key in self._ids else model_id(key)

    def name_of(self, id: str) -> str | None:
        """The name of the model with this tenant's id; None for any other text."""
        entry = self._ids.get(id)
        return entry.name if entry else None


class ModelDirectory:
    """Every model of the server. The first chat model is the default one."""

    def __init__(
        self, chat: Sequence[ModelEntry[ChatModel]], embedding: Sequence[ModelEntry[EmbeddingModel]] = (),
        rerank: Sequence[ModelEntry[RerankModel]] = (),
    ) -> None:
        self.chat, self.embedding, self.rerank = Shelf(chat), Shelf(embedding), Shelf(rerank)
        self.default = chat[0].model

    @classmethod
    def of(cls, settings: Settings) -> "ModelDirectory":
        """The models of these settings. Without an address the default chat model only quotes passages."""
        named = settings.model
        default: ChatModel = OpenAIChatModel(named) if named.base_url else ExtractiveChatModel()
        chat = [ModelEntry(DEFAULT, default, named.upstream)]
        chat += [ModelEntry(one.name, OpenAIChatModel(one), one.upstream) for one in settings.models]
        embedding, rerank = settings.embedding, settings.rerank
        return cls(
            chat,
            [ModelEntry(embedding.name, OpenAIEmbeddingModel(embedding), embedding.name)] if embedding.base_url else [],
            [ModelEntry(rerank.name, HTTPRerankModel(rerank), rerank.name)] if rerank.base_url else [],
        )

    def __iter__(self) -> Iterator[tuple[ModelType, ModelEntry[Any]]]:
        """Every model with its type, in the order of the settings."""
        shelves: tuple[Shelf[Any], ...] = (self.chat, self.embedding, self.rerank)
        for type, shelf in zip(ModelType, shelves, strict=True):
            yield from ((type, entry) for entry in shelf)

    def find(self, llm_id: str) -> ChatModel | None:
        """The chat model of this name or id; None where the operator set up no such model. Empty is the default."""
        return self.chat.find(llm_id) if llm_id else self.default

    def find_embedding(self, embedding_id: str = "") -> EmbeddingModel | None:
        """The embedding model of this name or id. Empty is the server's, where it has one."""
        if not embedding_id:
            return next((entry.model for entry in self.embedding), None)
        return self.embedding.find(embedding_id)

    def find_rerank(self, rerank_id: str) -> RerankModel | None:
        """The rerank model of this name or id. Empty is none, as on a chat."""
        return self.rerank.find(rerank_id)
