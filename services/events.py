"""Domain events: what happens while a turn is answered, in no protocol's words.

An `Answerer` yields them, the run worker folds and stores them, one translator a protocol prints them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class ErrorCode(StrEnum):
    """Why an answer failed: the closed list that is stored and sent."""

    MODEL_ERROR = "MODEL_ERROR"
    TIMEOUT = "TIMEOUT"
    RATE_LIMIT = "RATE_LIMIT"
    CONTEXT_TOO_LONG = "CONTEXT_TOO_LONG"
    NETWORK_ERROR = "NETWORK_ERROR"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_RESPONSE = "INVALID_RESPONSE"
    INTERNAL_ERROR = "INTERNAL_ERROR"


# What marks a filtered answer: the list of codes is closed.
FILTERED = "The model's provider filtered the answer: its rules for content do not allow it."


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one generation."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningStart:
    """Reasoning begins. The worker puts it before the first ReasoningDelta; answerers needn't."""


@dataclass(frozen=True, slots=True)
class ReasoningEnd:
    """Reasoning is over. The worker puts it after the last ReasoningDelta; answerers needn't."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The passages an answer rests on, in wire form (14 keys a chunk), and their count by document."""

    chunks: list[dict[str, Any]]
    doc_aggs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Citations:
    """Which sources the finished text cites: indexes into `Sources.chunks`, documents narrowed to them."""

    cited: list[int]
    doc_aggs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    call_id: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    content: str


@dataclass(frozen=True, slots=True)
class State:
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Custom:
    """Another protocol's own event, carried verbatim."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class End:
    """The last event of every run. `error_message` is our sentence, for anyone; `detail` is for the log."""

    finish_reason: FinishReason = FinishReason.STOP
    usage: Usage | None = None
    error_code: ErrorCode | None = None
    error_message: str | None = None
    detail: str | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether the provider's content filter ended the answer; asked again it would do so again."""
        return self.error_message == FILTERED


Event = (
    TextDelta | ReasoningDelta | ReasoningStart | ReasoningEnd | Sources | Citations
    | ToolCallStart | ToolCallArguments | ToolCallEnd | ToolResult | State | Custom | End
)


@dataclass(frozen=True, slots=True)
class Question:
    """What an answerer gets: the question's text, the stored history before it (entries, oldest first,
    failed turns included), and what this request asks for beside them (`temperature`, `quote`,
    `doc_ids`, prompt parameters)."""

    text: str
    history: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


class Answerer(Protocol):
    """Anything that answers: the RAG pipeline is one.

    Yields events and ends by itself, with an `End` or by returning (which means `stop`). A failure is
    a `services.errors.ModelFailure`; any other exception is a bug and ends the run as INTERNAL_ERROR.
    Closing the iterator abandons the model's stream.
    """

    def answer(self, question: Question) -> Iterator[Event]: ...
