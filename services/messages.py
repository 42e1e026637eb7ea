"""A document's entries, turned into what others read: RAGFlow's wire, a model's prompt.

Pure functions. Stored order is arrival order; another protocol's layout is made when it is read.
"""

from typing import Any

from db.jsontext import dumps
from db.legacy import arrays
from services.think_tags import without_thoughts

Entry = dict[str, Any]
Slot = dict[str, Any]

_SHOWN_ROLES = ("user", "assistant")
_INTERRUPTED_TOOL = "The tool call was interrupted."


def adopt(message: Any, reference: Any) -> tuple[list[Any], list[Any]]:
    """Arrays out of what an import found in the two columns (NULL, text, `{}`, an object, chunks as a map).

    A row made of them gets format 0 and next_seq 0; its first write mends the rest.
    """
    return arrays(message, reference)


def text_of(content: Any, between: str = "\n") -> str:
    """A message's content as text: a list of parts gives its text parts, a line each or with `between`."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return between.join(part for part in parts if isinstance(part, str))
    return "" if content is None else str(content)


def configured(value: Any) -> str:
    """A text of a chat's configuration, where a client may have put another JSON value: as JSON says it."""
    if isinstance(value, str):
        return value
    return "" if value is None or value is False else dumps(value)


def ragflow_view(entries: list[Entry], slots: list[Slot]) -> tuple[list[Entry], list[Slot]]:
    """The entries and slots that RAGFlow's wire can show: text of users and assistants, nothing hidden."""
    shown = [
        entry | {"content": text_of(entry.get("content"))}
        for entry in entries
        if entry["role"] in _SHOWN_ROLES and not entry.get("hidden")
    ]
    return shown, slots


def to_llm_history(entries: list[Entry]) -> list[Entry]:
    """Entries as a history for a model, oldest first: those without content are dropped, all others kept.

    The rule is fastrag's `to_llm_history`: also `""`, interrupted partials, failed turns with text.
    """
    return [
        {"role": entry["role"], "content": entry["content"]}
        for entry in entries if entry.get("content") is not None
    ]


def for_model(entries: list[Entry]) -> list[Entry]:
    """The prompt's messages: users and assistants in turn, beginning and ending with the user.

    Left out: system entries, what stands before the first question, failed turns, answers without
    text with their questions, thinking. An unanswered tool call gets an answer.
    """
    turns = _without_failures(_turns(entries))
    messages: list[Entry] = []
    for entry in (entry for turn in turns for entry in turn):
        message = _message(entry)
        if messages and _joins(messages[-1], message):
            messages[-1] = messages[-1] | {"content": f"{messages[-1]['content']}\n\n{message['content']}"}
        else:
            messages.append(message)
    return _with_tool_answers(messages)


def _turns(entries: list[Entry]) -> list[list[Entry]]:
    turns: list[list[Entry]] = []
    seen: set[str] = set()
    for entry in entries:
        uid = entry.get("uid")
        if entry["role"] == "system" or uid in seen or entry.get("hidden"):
            continue
        if uid:
            seen.add(uid)
        if entry["role"] == "user":
            turns.append([entry])
        elif turns:
            turns[-1].append(entry)
    return turns


def _without_failures(turns: list[list[Entry]]) -> list[list[Entry]]:
    kept = [turn for turn in turns[:-1] if _is_answered(turn)]
    return [*kept, *turns[-1:]]


def _is_answered(turn: list[Entry]) -> bool:
    answers = [entry for entry in turn if entry["role"] == "assistant"]
    failed = any(entry.get("finish_reason") == "error" for entry in answers)
    return not failed and any(_message(entry)["content"] or entry.get("tool_calls") for entry in answers)


def _message(entry: Entry) -> Entry:
    text = text_of(entry.get("content"))
    if entry["role"] == "assistant":
        text = without_thoughts(text)
    kept = {key: entry[key] for key in ("tool_calls", "tool_call_id", "name") if entry.get(key)}
    return {"role": entry["role"], "content": text} | kept


def _joins(earlier: Entry, later: Entry) -> bool:
    """Two messages in a row of one role are one, so that roles alternate; tool calls keep theirs apart."""
    roles = (earlier["role"], later["role"])
    return roles in (("user", "user"), ("assistant", "assistant")) and not (
        earlier.get("tool_calls") or later.get("tool_calls")
    )


def _with_tool_answers(messages: list[Entry]) -> list[Entry]:
    """Each tool call followed by its answer, in the calls' order; answers without their call are left out."""
    paired: list[Entry] = []
    answers: dict[str, Entry] = {}  # to the calls of the message before them
    for message in reversed(messages):
        if message["role"] == "tool":
            answers[str(message.get("tool_call_id"))] = message
            continue
        calls = [
            answers.get(call["id"], {"role": "tool", "tool_call_id": call["id"], "content": _INTERRUPTED_TOOL})
            for call in message.get("tool_calls", ())
        ]
        paired += [*reversed(calls), message]
        answers = {}
    return paired[::-1]
