"""Reasoning that a text holds as `<think>…</think>`, as a model writes it and as answers are stored, told apart
however the text is cut. A tag right behind a backtick is code: the text speaks of tags."""

import re
from collections.abc import Iterator

from services.events import Event, ReasoningDelta, TextDelta
from services.structure_answer import END_THINK, THINK

_OPEN, _CLOSE = re.compile(f"(?<!`){THINK}"), re.compile(END_THINK)
_THOUGHTS = re.compile(f"(?<!`){THINK}.*?({END_THINK}|$)", re.DOTALL)


def without_thoughts(text: str) -> str:
    """The text alone, trimmed."""
    return _THOUGHTS.sub("", text).strip()


class ThinkTags:
    """Splits a text that comes in pieces. What may be the beginning of a tag is held until more comes."""

    def __init__(self) -> None:
        self._before = ""  # the last character of what isn't held
        self._held = ""
        self._is_thinking = False
        self._has_thought = False
        self._has_text = False

    def read(self, text: str) -> Iterator[TextDelta | ReasoningDelta]:
        """The deltas of one more piece."""
        self._held += text
        while found := self._next_tag():
            yield from self._delta(self._take(found.start() - len(self._before)))
            self._take(len(found[0]))
            self._is_thinking, self._has_thought = not self._is_thinking, True
        kept = _overlap(self._held, END_THINK if self._is_thinking else THINK)
        yield from self._delta(self._take(len(self._held) - kept))

    def split(self, event: Event) -> Iterator[Event]:
        """A text's deltas; any other event as it is, after what was held."""
        if isinstance(event, TextDelta):
            yield from self.read(event.text)
        else:
            yield from self.end()
            yield event

    def end(self) -> Iterator[TextDelta | ReasoningDelta]:
        """What was held: no tag came of it."""
        yield from self._delta(self._take(len(self._held)))

    def _next_tag(self) -> re.Match[str] | None:
        tag = _CLOSE if self._is_thinking else _OPEN
        return tag.search(self._before + self._held, len(self._before))

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        self._before = taken[-1:] or self._before
        return taken

    def _delta(self, text: str) -> Iterator[TextDelta | ReasoningDelta]:
        if self._is_thinking:
            if text:
                yield ReasoningDelta(text)
            return
        if not self._has_text and self._has_thought:
            text = text.lstrip()  # the blank lines that set an answer apart from the thoughts before it
        self._has_text = self._has_text or bool(text)
        if text:
            yield TextDelta(text)


def _overlap(text: str, tag: str) -> int:
    """How many characters at the text's end may be the tag's beginning."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[-size:])), 0)
