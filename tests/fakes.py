"""A model whose words the test writes, and nothing else that isn't real."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from services.errors import ModelFailure
from services.events import End, ErrorCode, Event, FinishReason, Sources, TextDelta, Usage
from services.models import DEFAULT, ModelDirectory, ModelEntry
from services.rag import model_failures


def chunk(name: str) -> dict[str, Any]:
    """A passage in wire form that can be told from every other."""
    return {
        "id": name, "content": f"passage {name}", "document_id": f"doc-{name}", "document_name": f"{name}.md",
        "dataset_id": "kb", "image_id": None, "positions": None, "url": None, "similarity": 0.5,
        "vector_similarity": None, "term_similarity": 0.5, "row_id": None, "doc_type": None,
        "document_metadata": None,
    }


def says(*texts: str, chunks: tuple[str, ...] = (), finish: FinishReason = FinishReason.STOP) -> Iterator[Event]:
    """An answer in these deltas, resting on these passages."""
    if chunks:
        yield Sources(
            [chunk(name) for name in chunks],
            [{"doc_id": f"doc-{name}", "doc_name": f"{name}.md", "count": 1} for name in chunks],
        )
    for text in texts:
        yield TextDelta(text)
    yield End(finish, Usage(3, len(texts)))


def fails(*texts: str, code: ErrorCode = ErrorCode.MODEL_ERROR) -> Iterator[Event]:
    """An answer that breaks off after these deltas."""
    for text in texts:
        yield TextDelta(text)
    raise ModelFailure(code, "The model failed.", "upstream said: secret detail")


def filtered(*texts: str) -> Iterator[Event]:
    """An answer that the provider's content filter ends after these deltas."""
    for text in texts:
        yield TextDelta(text)
    raise model_failures.filtered("upstream said: secret detail")


class ScriptedModel:
    """Answers each question by the script that was given for it; by an echo where there is none."""

    name = "scripted"

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self._scripts: dict[str, Callable[[], Iterator[Event]]] = {}

    def script(self, question: str, answer: Callable[[], Iterator[Event]]) -> None:
        self._scripts[question] = answer

    def stream(self, request: Any) -> Iterator[Event]:
        self.requests.append(request)
        script = self._scripts.get(request.question)
        yield from script() if script else says(f"You said: {request.question}")


class Gate:
    """An answer that says its first words and then waits until the test opens the gate."""

    def __init__(self, *before: str, after: tuple[str, ...] = ("done",), chunks: tuple[str, ...] = ()) -> None:
        self.before, self.after, self.chunks = before, after, chunks
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> Iterator[Event]:
        if self.chunks:
            yield next(says(chunks=self.chunks))
        for text in self.before:
            yield TextDelta(text)
        self.reached.set()
        if not self.opened.wait(30):
            raise AssertionError("nobody opened the gate")
        yield from says(*self.after)


class ScriptedModels(ModelDirectory):
    """A model directory with the scripted model as its default, and by one more name."""

    default: ScriptedModel

    def __init__(self) -> None:
        model = ScriptedModel()
        super().__init__([ModelEntry(DEFAULT, model), ModelEntry("other-model", model)])
