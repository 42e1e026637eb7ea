"""What the body of a chat completion may hold: one ordered list of checks, in RAGFlow's order, with its texts."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from api.body import Flag, flag, shown, text_field
from api.question_fields import (
    Content,
    Filter,
    Pipeline,
    checked_message,
    conflict_policy,
    idempotency_key,
    pipeline_options,
    refuse_too_many,
    refuse_unless_number,
)
from services.completions import OnConflict
from services.errors import InvalidArgument, InvalidData
from services.knowledge.metadata import read_filter

# What belongs to the request itself; everything else is an option of the pipeline.
REQUEST_KEYS = {
    "model", "messages", "stream", "stream_options", "session_id", "user", "on_conflict", "max_completion_tokens",
    "extra_body", "reference", "reference_metadata", "metadata_condition",
}
# OpenAI's clients put the keys of their own `extra_body` beside the others; RAGFlow's callers nest it once more.
EXTRA_KEYS = ("reference", "reference_metadata", "metadata_condition")
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
NO_ROLES = ("tool", "function")  # calls of a client's tools: a chat has none


class Part(TypedDict):
    """A part of a message; of other parts than text nothing is read."""

    type: str
    text: NotRequired[Content]


@with_config(extra="allow")
class OpenAIMessage(TypedDict):
    """A message as OpenAI's clients send it; calls and answers of tools are left out."""

    role: Annotated[str, Field(json_schema_extra={"enum": [*ROLES, *NO_ROLES]})]
    content: NotRequired[Content | list[Part] | None]


class Metadata(TypedDict, total=False):
    """Which documents' metadata the reference shows."""

    fields: list[Any] | None


class Extra(TypedDict, total=False):
    """What is ours of a completion."""

    reference: Annotated[Flag, Field(description="whether the answer comes with its passages")]
    reference_metadata: Metadata | None
    metadata_condition: Filter | None


class CompletionBody(Extra, Pipeline):
    """A chat completion of OpenAI's. `session_id` answers in a session, whose history is the stored one."""

    model: str | None
    messages: Annotated[list[OpenAIMessage], Field(min_length=1, json_schema_extra={"maxItems": "limits.messages"})]
    stream: NotRequired[Annotated[Flag, Field(description="false where absent")]]
    max_completion_tokens: NotRequired[float | None]
    user: NotRequired[Any]
    stream_options: NotRequired[Any]
    extra_body: NotRequired[Extra | None]


@dataclass(frozen=True, slots=True)
class Completion:
    """A request as far as it can be checked without its chat. With a session the history is the stored one: None."""

    model: str
    question: dict[str, Any]
    history: list[dict[str, Any]] | None
    streams: bool
    reference: bool
    session_id: str | None
    on_conflict: OnConflict
    idempotency_key: str | None
    metadata_condition: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """What the client said to the model, to be counted."""
        return "\n".join(message["content"] for message in [*(self.history or []), self.question])


def read_completion(body: dict[str, Any]) -> Completion:
    """The body, checked. Raises InvalidArgument, InvalidData."""
    missing = [name for name in ("model", "messages") if name not in body]
    if missing:
        raise InvalidArgument(f"required argument are missing: {','.join(missing)}; ")
    extra = _extra(body)
    messages = _messages(body["messages"])
    if not isinstance(body["model"], str | None):
        raise InvalidArgument(f"`model` must be a text, not {shown(body['model'])}")
    session_id = text_field(body, "session_id")
    reference = flag(extra, "reference", default=False)
    *history, question = messages if session_id else _joined(messages)
    return Completion(
        model=body["model"] or "", question=question, history=None if session_id else history,
        streams=flag(body, "stream", default=False), reference=reference,
        session_id=session_id, on_conflict=conflict_policy(body),
        idempotency_key=idempotency_key() if session_id else None,
        metadata_condition=extra.get("metadata_condition"),
        options=_options(body, extra, quote=reference),
    )


def metadata_options(asked: Completion) -> dict[str, Any]:
    """The option that narrows retrieval to documents of some metadata, or none. Raises InvalidData, InvalidArgument."""
    condition = asked.metadata_condition or {}
    if not isinstance(condition, dict):
        raise InvalidData("metadata_condition must be an object.")
    read_filter(condition)
    return {"metadata_condition": condition} if condition else {}


def _extra(body: dict[str, Any]) -> dict[str, Any]:
    nested = body.get("extra_body") or {}
    if not isinstance(nested, dict):
        raise InvalidData("extra_body must be an object.")
    given = {key: body[key] for key in EXTRA_KEYS if body.get(key) is not None}
    extra = given | {key: nested[key] for key in EXTRA_KEYS if nested.get(key) is not None}
    metadata = extra.get("reference_metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidData("reference_metadata must be an object.")
    if not isinstance(metadata.get("fields"), list | None):
        raise InvalidData("reference_metadata.fields must be an array.")
    return extra


def _options(body: dict[str, Any], extra: dict[str, Any], *, quote: bool) -> dict[str, Any]:
    refuse_unless_number(body, "max_completion_tokens")
    options = {"quote": quote} | pipeline_options(body, REQUEST_KEYS)
    if body.get("max_completion_tokens") is not None:
        options["max_tokens"] = body["max_completion_tokens"]
    if extra.get("reference_metadata"):
        options["reference_metadata"] = extra["reference_metadata"]
    return options


def _messages(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise InvalidData("messages must be an array.")
    if not given:
        raise InvalidData("You have to provide messages.")
    refuse_too_many(given)
    if not all(isinstance(message, dict) for message in given):
        raise InvalidData("Each message must be an object.")
    if not all(isinstance(message.get("content"), str | list | None) for message in given):
        raise InvalidData("messages[].content must be a string or an array of content parts.")
    unnamed = next((message for message in given if not isinstance(message.get("role"), str)), None)
    if unnamed is not None:
        raise InvalidArgument(f"each message needs a `role`; it is missing in {shown(unnamed)}")
    if given[-1]["role"] != "user":
        raise InvalidData("The last content of this conversation is not from user.")
    bare = [{"role": message["role"], "content": message.get("content")} for message in given[:-1]]
    return [_checked(message) for message in [*bare, given[-1]] if message["role"] not in NO_ROLES]


def _checked(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the text of its parts; images and other parts are left out."""
    role = ROLES.get(message["role"])
    if role is None:
        raise InvalidArgument(
            f"a message's `role` must be one of {', '.join((*ROLES, *NO_ROLES))}, not {shown(message['role'])}"
        )
    content = message.get("content")
    if not isinstance(content, str):
        content = "\n".join(
            part["text"] for part in content or []
            if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        )
    return checked_message(message | {"role": role, "content": content})


def _joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a user said in several messages in a row as one; else all but the last count as failed turns."""
    joined: list[dict[str, Any]] = []
    for message in sorted(messages, key=lambda message: message["role"] != "system"):
        if message["role"] == "assistant" and not message["content"].strip():
            continue
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = message | {"content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined
