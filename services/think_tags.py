"""Reasoning that a text begins with as `<think>…</think>`, as models write it and as answers are stored, told apart
however the text is cut. Once something else was said, a tag is text: an answer may speak of tags."""

from collections.abc import Iterator

from services.events import Event, ReasoningDelta, TextDelta
from services.structure_answer import END_THINK, THINK

Said = TextDelta | ReasoningDelta


def without_thoughts(text: str) -> str:
    """The text alone, trimmed."""
    tags = ThinkTags()
    said = [*tags.read(text), *tags.end()]
    return "".join(each.text for each in said if isinstance(each, TextDelta)).strip()


class ThinkTags:
    """Splits a text that comes in pieces. What may be the beginning of a tag is held until more comes."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._has_thought = False
        self._has_text = False

    def read(self, text: str) -> Iterator[Said]:
        """The deltas of one more piece."""
        self._held += text
        while self._held:
            if self._has_text:
                yield from self.end()
            elif self._is_thinking:
                thought, tag, rest = self._held.partition(END_THINK)
                kept = 0 if tag else _overlap(thought, END_THINK)
                yield from self._take(len(thought) - kept)
                if not tag:
                    return
                self._held, self._is_thinking = rest, False
            elif (begun := self._held.lstrip()).startswith(THINK):
                self._held, self._is_thinking, self._has_thought = begun.removeprefix(THINK), True, True
            elif THINK.startswith(begun):
                return
            else:
                yield from self.end()

    def split(self, event: Event) -> Iterator[Event]:
        """A text's deltas; any other event as it is, after what was held."""
        if isinstance(event, TextDelta):
            yield from self.read(event.text)
        else:
            yield from self.end()
            yield event

    def end(self) -> Iterator[Said]:
        """What was held: no tag came of it."""
        yield from self._take(len(self._held))

    def _take(self, length: int) -> Iterator[Said]:
        text, self._held = self._held[:length], self._held[length:]
        if self._is_thinking:
            if text:
                yield ReasoningDelta(text)
            return
        if self._has_thought and not self._has_text:
            text = text.lstrip()  # the blank lines that set an answer apart from the thoughts before it
        if text:
            self._has_text = True
            yield TextDelta(text)


def _overlap(text: str, tag: str) -> int:
    """How many characters at the text's end may be the tag's beginning."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[-size:])), 0)
