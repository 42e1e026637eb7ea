"""OpenAI's words for a turn: chunks of a stream, or one whole completion, made of a run's events.

No chunk has empty `choices`: usage, and the reference where it is wanted, ride on the one that stops.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from api.openai_errors import ErrorBody, error_event
from api.responses import Passage
from services.events import End, Event, FinishReason, ReasoningDelta, Sources, TextDelta, Usage
from services.runs.reading import Reading
from services.think_tags import ThinkTags

DONE = b"[DONE]"
_BYTES_A_TOKEN = 4  # of UTF-8: near enough for words and for Chinese
# An interrupted answer is cut short, as one that met the limit; the protocol has no nearer word.
_FINISH = {
    FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.INTERRUPTED: "length",
}


class ReasoningTokens(TypedDict):
    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class CompletionUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: ReasoningTokens


class SaidMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    reasoning_content: str | None
    reference: NotRequired[list[Passage]]


class Choice(TypedDict):
    index: Literal[0]
    message: SaidMessage
    finish_reason: Literal["stop", "length", "content_filter"]
    logprobs: None


class CompletionNames(TypedDict):
    id: str
    created: int
    model: str
    system_fingerprint: str
    session_id: NotRequired[str]


class ChatCompletion(CompletionNames):
    """A whole answer."""

    object: Literal["chat.completion"]
    choices: list[Choice]
    usage: CompletionUsage


class ChunkDelta(TypedDict):
    role: NotRequired[Literal["assistant"]]
    content: str | None
    function_call: None
    tool_calls: None
    reasoning_content: str | None
    reference: NotRequired[list[Passage]]
    final_content: NotRequired[str]


class ChunkChoice(TypedDict):
    index: Literal[0]
    delta: ChunkDelta
    finish_reason: Literal["stop", "length", "content_filter"] | None
    logprobs: None


class ChatCompletionChunk(CompletionNames):
    """A piece of an answer. The last event is the text [DONE], or an error."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: CompletionUsage | None


CompletionEvent = ChatCompletionChunk | ErrorBody | Literal["[DONE]"]


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer calls itself, and what it shows. `prompt` is counted where the model tells no usage.

    `repeats_role`: RAGFlow's chunks all name their role; OpenAI's own client joins what it gets of it to one word.
    """

    id: str
    model: str
    prompt: str
    reference: bool = False
    session_id: str | None = None
    repeats_role: bool = False


class OpenAIFrames:
    """Translates one run's events for one reader."""

    def __init__(self, reading: Reading, form: Form) -> None:
        self.reading = reading
        self.form = form
        self.end: End | None = None
        self._created = int(reading.answered_at or time.time())
        self._tags = ThinkTags()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._chunks: list[dict[str, Any]] = []
        self._has_role = False

    def __call__(self, event: Event) -> Iterator[Any]:
        for said in self._fold(event):
            if isinstance(said, TextDelta):
                yield self._chunk({"content": said.text})
            elif isinstance(said, ReasoningDelta):
                yield self._chunk({"reasoning_content": said.text})
            elif isinstance(said, End):
                yield from self._ending(said)

    def read(self) -> End:
        """Read the run to its end."""
        for event in self.reading.events():
            self._fold(event)
        if self.end is None:
            raise RuntimeError(f"run {self.reading.run_id} ended without an end")
        return self.end

    def completion(self, end: End) -> dict[str, Any]:
        """The whole answer, once it is read."""
        message: dict[str, Any] = {
            "role": "assistant", "content": "".join(self._text),
            "reasoning_content": "".join(self._reasoning) or None,
        }
        if self.form.reference:
            message["reference"] = self._chunks
        choice = {
            "index": 0, "message": message, "finish_reason": _finish(end), "logprobs": None,
        }
        return self._named("chat.completion") | {"choices": [choice], "usage": self._usage(end)}

    def _fold(self, event: Event) -> list[Event]:
        said = list(self._tags.split(event))
        for each in said:
            if isinstance(each, TextDelta):
                self._text.append(each.text)
            elif isinstance(each, ReasoningDelta):
                self._reasoning.append(each.text)
            elif isinstance(each, Sources):
                self._chunks = each.chunks
            elif isinstance(each, End):
                self.end = each
        return said

    def _ending(self, end: End) -> Iterator[Any]:
        if has_failed(end):
            yield error_event(end.error_code, end.error_message)
            return
        shown = {"reference": self._chunks, "final_content": "".join(self._text)} if self.form.reference else {}
        yield self._chunk(shown, _finish(end)) | {"usage": self._usage(end)}
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        role = {} if self._has_role and not self.form.repeats_role else {"role": "assistant"}
        self._has_role = True
        nothing = {"content": None, "function_call": None, "tool_calls": None, "reasoning_content": None}
        choice = {"delta": role | nothing | delta, "finish_reason": finish, "index": 0, "logprobs": None}
        return self._named("chat.completion.chunk") | {"choices": [choice], "usage": None}

    def _named(self, kind: str) -> dict[str, Any]:
        named = {
            "id": self.form.id, "object": kind, "created": self._created, "model": self.form.model,
            "system_fingerprint": "",
        }
        return named | ({"session_id": self.form.session_id} if self.form.session_id else {})

    def _usage(self, end: End) -> dict[str, Any]:
        told = end.usage or Usage()
        reasoning = estimate_tokens("".join(self._reasoning))
        prompt = told.prompt_tokens or estimate_tokens(self.form.prompt)
        completion = told.completion_tokens or estimate_tokens("".join(self._text)) + reasoning
        return {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "completion_tokens_details": {
                "reasoning_tokens": min(reasoning, completion), "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


def has_failed(end: End) -> bool:
    """Whether an answer is an error; one that the provider filtered has a `finish_reason` of its own here."""
    return end.finish_reason is FinishReason.ERROR and not end.is_filtered


def _finish(end: End) -> str:
    return "content_filter" if end.is_filtered else _FINISH[end.finish_reason]


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, where no model tells: every model has a tokenizer of its own."""
    return -(-len(text.encode()) // _BYTES_A_TOKEN)
