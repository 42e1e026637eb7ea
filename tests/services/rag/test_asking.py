"""A model that is asked twice: for a question that stands alone, and after a history that was too long."""

from collections.abc import Iterator
from typing import Any

import pytest

from services.errors import ModelFailure
from services.events import End, ErrorCode, Event, Question, TextDelta
from services.rag.asking import standalone_question, stream_trimmed
from services.rag.prompts import ModelRequest

HISTORY = [{"role": role, "content": f"{role} {n}"} for n in range(8) for role in ("user", "assistant")]


class Model:
    """Answers a request of at most `room` messages; refuses a longer one, or says `first` and then fails."""

    name = "model"

    def __init__(self, *texts: str, room: int = 99, fails_after: bool = False, code: str = "CONTEXT_TOO_LONG") -> None:
        self.texts, self.room, self.fails_after, self.code = texts, room, fails_after, ErrorCode(code)
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        self.requests.append(request)
        if len(request.messages) > self.room and not self.fails_after:
            raise ModelFailure(self.code, "No.")
        yield from map(TextDelta, self.texts)
        if self.fails_after:
            raise ModelFailure(self.code, "No.")
        yield End()


def asked(*history: dict[str, Any]) -> ModelRequest:
    return ModelRequest([{"role": "system", "content": "s"}, *history, {"role": "user", "content": "q"}], "q")


def test_a_history_that_is_too_long_is_cut_once_and_the_question_stays() -> None:
    model = Model("yes", room=6)
    assert list(stream_trimmed(model, asked(*HISTORY))) == [TextDelta("yes"), End()]
    first, second = (request.messages for request in model.requests)
    assert (len(first), second[0], second[-1]) == (18, first[0], first[-1])
    assert second[1:] == first[-3:]
    assert second[1]["role"] == "user"


@pytest.mark.parametrize(("model", "request_"), [
    (Model(room=0), asked()), (Model(room=0), asked(*HISTORY)), (Model("some", fails_after=True), asked(*HISTORY)),
    (Model(room=6, code="TIMEOUT"), asked(*HISTORY)),
])
def test_any_other_failure_is_a_failure(model: Model, request_: ModelRequest) -> None:
    with pytest.raises(ModelFailure):
        list(stream_trimmed(model, request_))
    assert len(model.requests) == (2 if model.room == 0 and len(request_.messages) > 2 else 1)


def test_a_question_is_rewritten_from_the_last_messages() -> None:
    model = Model(" What moves ", "the pump? ")
    assert standalone_question(model, Question("What moves it?", HISTORY)) == "What moves the pump?"
    prompt = model.requests[0].messages[1]["content"]
    assert prompt.startswith("user: user 5")
    assert prompt.endswith("Question: What moves it?")


@pytest.mark.parametrize("model", [Model(), Model(" "), Model("x" * 3_000), Model(room=0)])
def test_a_question_that_cannot_be_rewritten_stays_as_it_is(model: Model) -> None:
    assert standalone_question(model, Question("Why?", HISTORY)) == "Why?"


def test_a_first_question_asks_nobody() -> None:
    model = Model("never")
    assert standalone_question(model, Question("Why?", [{"role": "assistant", "content": "Hi!"}])) == "Why?"
    assert model.requests == []
