"""STUB"""
from collections.abc import Iterator
from typing import Any, Protocol

from conf.settings import ModelSettings
from services.events import End, Event, TextDelta, Usage


class ChatModel(Protocol):
    name: str
    def stream(self, request: Any) -> Iterator[Event]: ...

class ExtractiveChatModel:
    name = "extractive"
    def stream(self, request: Any) -> Iterator[Event]:
        for w in ("Echo: " + request).split(" "):
            yield TextDelta(w + " ")
        yield End(usage=Usage(3, 4))

class OpenAIChatModel(ExtractiveChatModel):
    def __init__(self, settings: ModelSettings) -> None: ...
