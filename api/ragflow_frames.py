"""RAGFlow's words for a turn: what `structure_answer` says in a Frame, as RAGFlow's clients read it.

A stream ends once: by `data: true`, or by the one frame of a failure.
"""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from api.responses import DocumentCount, Passage
from services.events import ErrorCode, Event, FinishReason
from services.runs.reading import Reading
from services.structure_answer import Frame, Turn, structure_answer


class Reference(TypedDict):
    """What an answer rests on."""

    total: int
    chunks: list[Passage]
    doc_aggs: list[DocumentCount]


class TokenCounts(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Named(TypedDict):
    """`id` is the turn's; without a chat nothing is stored and there is no session."""

    id: str
    session_id: str | None
    chat_id: NotRequired[str]
    run_id: str


class Answer(Named):
    """A whole answer; in a stream the last frame, whose `answer` is empty, since the deltas have said it."""

    answer: str
    reference: Reference
    audio_binary: None
    prompt: str
    created_at: float | None
    final: Literal[True]
    finish_reason: FinishReason
    usage: NotRequired[TokenCounts]


class NoPassages(TypedDict):
    chunks: list[Passage]


class Delta(Named):
    """A piece of an answer."""

    answer: str
    reference: NoPassages
    audio_binary: None
    final: Literal[False]
    start_to_think: NotRequired[Literal[True]]
    end_to_think: NotRequired[Literal[True]]


class Failure(Named):
    """The end of an answer that failed."""

    answer: str
    reference: list[Passage]
    final: Literal[True]
    finish_reason: Literal[FinishReason.ERROR]
    error_code: ErrorCode


class AnswerEvent(TypedDict):
    code: Literal[0]
    message: str
    data: Delta | Answer | Literal[True]


class FailureEvent(TypedDict):
    code: Literal[500]
    message: str
    data: Failure


TERMINATOR = {"code": 0, "message": "", "data": True}


class RagflowFrames:
    """Translates one run's events for one reader; `legacy` speaks the cumulative style of older clients."""

    def __init__(self, reading: Reading, chat_id: str, *, legacy: bool = False) -> None:
        self.names = names(reading, chat_id)
        self.reading = reading
        self.legacy = legacy
        self.turn = Turn(created_at=reading.answered_at)

    def __call__(self, event: Event) -> Iterator[dict[str, Any]]:
        frame = structure_answer(self.turn, event, self.reading.turn_id, self.reading.session_id)
        if frame is None:
            return
        if frame.final:
            yield from self._ending(frame)
        elif self.legacy:
            yield _envelope(_delta(self.turn.text) | self.names)
        else:
            yield _envelope(_delta(frame.answer) | _think_flags(frame) | self.names)

    def _ending(self, frame: Frame) -> Iterator[dict[str, Any]]:
        if frame.finish_reason is FinishReason.ERROR:
            yield failure_frame(frame, self.names)
            return
        yield _envelope(_final(frame, self.turn.text if self.legacy else "") | self.names)
        yield TERMINATOR


def plain(reading: Reading, chat_id: str) -> tuple[Frame, dict[str, Any]]:
    """Read a run to its end: the last frame, and the data of a reply that doesn't stream."""
    turn = Turn(created_at=reading.answered_at)
    last: Frame | None = None
    for event in reading.events():
        last = structure_answer(turn, event, reading.turn_id, reading.session_id) or last
    if last is None or not last.final:
        raise RuntimeError(f"run {reading.run_id} ended without an end")
    return last, _final(last, turn.text) | names(reading, chat_id)


def names(reading: Reading, chat_id: str) -> dict[str, Any]:
    """What every frame says of itself, so that a client can't mix two answers."""
    named = {"id": reading.turn_id, "session_id": reading.session_id or ("" if not chat_id else None)}
    return named | ({"chat_id": chat_id} if chat_id else {}) | {"run_id": reading.run_id}


def failure_frame(frame: Frame, named: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": 500, "message": frame.error_message,
        "data": {
            "answer": f"**ERROR**: {frame.error_message}", "reference": [], "final": True,
            "finish_reason": FinishReason.ERROR, "error_code": frame.error_code,
        } | named,
    }


def _envelope(data: dict[str, Any]) -> dict[str, Any]:
    return {"code": 0, "message": "", "data": data}


def _delta(text: str) -> dict[str, Any]:
    return {"answer": text, "reference": {"chunks": []}, "audio_binary": None, "final": False}


def _think_flags(frame: Frame) -> dict[str, Any]:
    if frame.start_to_think:
        return {"start_to_think": True}
    return {"end_to_think": True} if frame.end_to_think else {}


def _final(frame: Frame, answer: str) -> dict[str, Any]:
    shown = {
        "answer": answer, "reference": frame.reference, "audio_binary": None, "prompt": "",
        "created_at": frame.created_at, "final": True, "finish_reason": frame.finish_reason,
    }
    if frame.usage:
        shown["usage"] = {
            "prompt_tokens": frame.usage.prompt_tokens, "completion_tokens": frame.usage.completion_tokens,
            "total_tokens": frame.usage.total_tokens,
        }
    return shown


