"""The one writer of answers: RAGFlow's state table without its faults.

`structure_answer` folds each domain event into the turn held in memory and says in a `Frame` what a
reader may see of it. When the run ends, `entry` and `slot` go to the document together, once.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from services.events import (
    Citations,
    End,
    Event,
    FinishReason,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Sources,
    TextDelta,
    Usage,
)

THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Frame:
    """What one event shows, in RAGFlow's words. Only the last frame has `final` and a reference."""

    id: str
    session_id: str | None
    answer: str = ""
    reference: dict[str, Any] | None = None
    final: bool = False
    start_to_think: bool = False
    end_to_think: bool = False
    created_at: float | None = None
    finish_reason: FinishReason | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage: Usage | None = None
    text: str = ""


@dataclass(slots=True)
class Turn:
    """The answer of a running turn: what the events said so far."""

    parts: list[str] = field(default_factory=list)
    thinking: bool = False
    chunks: list[dict[str, Any]] = field(default_factory=list)
    doc_aggs: list[dict[str, Any]] = field(default_factory=list)
    cited: list[int] | None = None
    end: End | None = None
    created_at: float = field(default_factory=time.time)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def reference(self) -> dict[str, Any]:
        return {"total": len(self.chunks), "chunks": self.chunks, "doc_aggs": self.doc_aggs}


def structure_answer(turn: Turn, event: Event, message_id: str, session_id: str | None) -> Frame | None:
    """Fold one event into `turn`; the frame that shows it, or None where RAGFlow has no word for it.

    Sources and citations travel in the last frame, so that an intermediate one never wipes them.
    """
    if isinstance(event, TextDelta | ReasoningDelta):
        turn.parts.append(event.text)
        return Frame(message_id, session_id, answer=event.text)
    if isinstance(event, ReasoningStart):
        turn.parts.append(THINK)
        turn.thinking = True
        return Frame(message_id, session_id, start_to_think=True)
    if isinstance(event, ReasoningEnd):
        turn.parts.append(END_THINK)
        turn.thinking = False
        return Frame(message_id, session_id, end_to_think=True)
    if isinstance(event, Sources):
        turn.chunks, turn.doc_aggs = event.chunks, event.doc_aggs
    elif isinstance(event, Citations):
        turn.cited, turn.doc_aggs = event.cited, event.doc_aggs
    elif isinstance(event, End):
        return _final(turn, event, message_id, session_id)
    return None


def _final(turn: Turn, end: End, message_id: str, session_id: str | None) -> Frame:
    turn.end = end
    return Frame(
        message_id, session_id, reference=turn.reference, final=True, created_at=turn.created_at,
        finish_reason=end.finish_reason, error_code=end.error_code, error_message=end.error_message,
        usage=end.usage, text=turn.text,
    )


def closing(turn: Turn) -> list[Event]:
    """What must be said before a turn's end, wherever it breaks off: reasoning is closed."""
    return [ReasoningEnd()] if turn.thinking else []


def answer_entry(turn: Turn, turn_id: str, run_id: str, end: End) -> dict[str, Any]:
    """The assistant entry of an ended turn. Its content is the model's text, never an error's."""
    entry: dict[str, Any] = {
        "role": "assistant", "content": turn.text, "id": turn_id, "created_at": turn.created_at,
        "finish_reason": end.finish_reason, "run_id": run_id,
    }
    if end.usage:
        entry["token_count"] = end.usage.completion_tokens
    if end.error_code:
        entry |= {"error_code": end.error_code, "error_message": end.error_message}
    return entry


def answer_slot(turn: Turn, turn_id: str) -> dict[str, Any]:
    """The reference slot of an ended turn; without chunks it is there, and empty."""
    slot: dict[str, Any] = {"message_id": turn_id, "chunks": turn.chunks, "doc_aggs": turn.doc_aggs}
    if turn.cited is not None:
        slot["citations"] = turn.cited
    return slot


def replay(entry: dict[str, Any], slot: dict[str, Any] | None) -> list[Event]:
    """The events of a stored ending: the same text, the same reference, the same end."""
    sources = slot or {"chunks": [], "doc_aggs": []}
    events: list[Event] = [Sources(sources["chunks"], sources["doc_aggs"])]
    if sources.get("citations") is not None:
        events.append(Citations(sources["citations"], sources["doc_aggs"]))
    if entry["content"]:
        events.append(TextDelta(entry["content"]))
    usage = Usage(0, entry["token_count"]) if entry.get("token_count") is not None else None
    finish = FinishReason(entry.get("finish_reason", FinishReason.STOP))
    events.append(End(finish, usage, entry.get("error_code"), entry.get("error_message")))
    return events


def given_answer(message: dict[str, Any], turn_id: str | None) -> dict[str, Any]:
    """An answer that a client brought along from elsewhere, as an entry of its turn; an opening line has none."""
    entry = {key: value for key, value in message.items() if key != "id"} | {"created_at": time.time()}
    return entry | ({"id": turn_id} if turn_id else {})


def given_slot(turn_id: str) -> dict[str, Any]:
    """The slot of such a turn: nothing is known of its sources."""
    return answer_slot(Turn(), turn_id)
