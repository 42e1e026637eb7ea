"""What a body asks for and this server doesn't do, in sentences: better told than silently ignored."""

from collections.abc import Iterable
from typing import Any

CHUNK_METHOD = "naive"  # the only one there is: by headings, paragraphs and pages
_AS_IT_IS = {"chunk_method": CHUNK_METHOD, "permission": "me", "status": "1"}
_INSTEAD = {
    "permission": ": a dataset belongs to its tenant alone", "avatar": "; `icon` is a chat's picture",
    "llm": "; `llm_id` names a chat's model, `llm_setting` holds its parameters",
    "prompt": "; `prompt_config` says how a chat speaks", "kb_ids": "; `dataset_ids` names a chat's datasets",
    "status": "; a chat is deleted by DELETE",
}


def ignored(body: dict[str, Any], names: Iterable[str]) -> list[str]:
    """A sentence for each of these fields that the body gives: with a value that asks for something, and for more
    than there is."""
    return [_sentence(name, body[name]) for name in names if body.get(name) and body[name] != _AS_IT_IS.get(name)]


def warned(told: list[str]) -> dict[str, Any]:
    """`warnings` of an answer, or nothing."""
    return {"warnings": told} if told else {}


def _sentence(name: str, value: Any) -> str:
    if name == "chunk_method":
        return f"`chunk_method` {str(value)[:80]} isn't known; documents are cut as {CHUNK_METHOD}"
    return f"`{name}` has no effect{_INSTEAD.get(name, '')}"
