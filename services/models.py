"""The chat models that the operator set up, by name. A tenant's request names one, it never makes one."""

import hashlib
from typing import Any

from conf.settings import ModelSettings
from services.rag.chat_models import ChatModel, ExtractiveChatModel, OpenAIChatModel

DEFAULT = "default"


def model_id(name: str) -> str:
    """The `tenant_llm_id` of a model: 32 hex characters, resolved at each turn."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


class ModelDirectory:
    """Finds a model by its name, its upstream id or its `tenant_llm_id`."""

    def __init__(self, settings: ModelSettings) -> None:
        model: ChatModel = OpenAIChatModel(settings) if settings.base_url else ExtractiveChatModel()
        self.default = model
        names = {DEFAULT, settings.name} - {""}
        self._models = {key: model for name in names for key in (name, model_id(name))}

    def find(self, llm_id: str) -> ChatModel | None:
        """The model of this name or id; None where the operator set up no such model. Empty is the default."""
        return self._models.get(llm_id) if llm_id else self.default

    def embedding(self, name: str) -> Any:
        return None

    def reranker(self, name: str) -> Any:
        return None
