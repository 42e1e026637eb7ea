"""What a model is asked: the request it gets, the engine's template, a chat's own system prompt.

A template is filled in one pass, so that braces inside a passage or a question are text like any other.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from services.errors import InvalidArgument
from services.messages import configured
from services.rag.retrievers import Document

SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "max_tokens")

_ENGINE_SYSTEM = """\
You answer questions about the numbered documents below.

- Write in the language of the question.
- Say nothing that the documents do not say. If they lack the answer, or a part of it, say that.
- Prefer documents in the language of the question; turn to another language only for what they leave out.
- Where several documents say the same, use only the one in the language of the question.
- Put no document numbers into the text. End with one more line that lists the number of every document \
you used, each once, in this form: [1][3]
- Write document numbers nowhere else."""

_ENGINE_USER = """\
Documents:
{context}

Question:
{question}

Answer:"""

_CITING = """\
After each statement that rests on a passage, name the passage by its number as [ID:0]; for two of them \
write [ID:0] [ID:2]. Use the numbers shown with the passages, and no others."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model. `messages` is the whole prompt; `question` and `passages` are what it was made of.

    `quote` says whether the answer is to cite passages as `[ID:n]`. `parameters` has SAMPLING keys only.
    `seconds` bounds the whole answer, where that is shorter than the model's own limit.
    """

    messages: Sequence[Mapping[str, Any]]
    question: str
    passages: Sequence[Document] = ()
    parameters: Mapping[str, float] = field(default_factory=dict)
    quote: bool = True
    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Rules for the model and the form of a question; `user` has the places {context} and {question}."""

    system: str = _ENGINE_SYSTEM
    user: str = _ENGINE_USER

    def render(self, context: str, question: str) -> str:
        """The user message."""
        return _filled(self.user, {"context": context, "question": question})


def render_system(
    prompt_config: Mapping[str, Any], passages: Sequence[Document], options: Mapping[str, Any], quote: bool
) -> str:
    """A chat's system prompt with its parameters filled in.

    {knowledge} gets the passages; a prompt without this place has them at its end. Raises InvalidArgument
    for a required parameter that `options` lacks.
    """
    system = prompt_config.get("system")
    template = configured(system)
    knowledge = numbered(passages) or _text(options.get("knowledge"))
    parts = [_filled(template, _parameters(prompt_config, options) | {"knowledge": knowledge})]
    if passages and "{knowledge}" not in template:
        parts.append(knowledge)
    if passages and quote:
        parts.append(_CITING)
    return "\n\n".join(part for part in parts if part.strip())


def numbered(passages: Sequence[Document]) -> str:
    """The passages as a prompt shows them, numbered from 0 as `[ID:n]` cites them."""
    return "\n\n".join(f"ID: {n}\n{titled(passage)}" for n, passage in enumerate(passages))


def titled(passage: Document) -> str:
    """A passage below the name of its document and its heading, where it has them."""
    names = (passage.metadata.get(key) for key in ("document_name", "heading"))
    title = " > ".join(str(name) for name in names if name)
    return f"Title: {title}\n{passage.text}" if title else passage.text


def _parameters(prompt_config: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    """The values of the parameters that the chat declares, but for `knowledge`."""
    values: dict[str, str] = {}
    declared = [item for item in prompt_config.get("parameters") or () if isinstance(item, dict) and "key" in item]
    for parameter in declared:
        key = str(parameter["key"])
        if key == "date":
            values[key] = date.today().isoformat()
        elif key != "knowledge":
            if options.get(key) is None and not parameter.get("optional"):
                raise InvalidArgument(f"the chat's prompt needs the parameter `{key}`, which the request doesn't give")
            values[key] = _text(options.get(key))
    return values


def _text(value: Any) -> str:
    return configured(value)


def _filled(template: str, values: Mapping[str, str]) -> str:
    places = "|".join(re.escape(key) for key in values)
    return re.sub(rf"\{{({places})\}}", lambda place: values[place[1]], template)
