"""STUB"""
from collections.abc import Iterator
from typing import Any

from services.events import Event, Question, Sources


class DialogAnswerer:
    def __init__(self, dialog: Any, principal: Any, model: Any) -> None:
        self.model = model
    def answer(self, question: Question) -> Iterator[Event]:
        yield Sources([{"id": "c1", "content": question.text}], [{"doc_name": "d", "doc_id": "1", "count": 1}])
        yield from self.model.stream(question.text)
