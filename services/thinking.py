"""Thinking told from answering, where a text holds both: a model that writes the markers, a stored answer."""

from services.events import Event, ReasoningDelta, TextDelta
from services.structure_answer import END_THINK, THINK


class ThinkingSplitter:
    """The same events without markers in their text. What may be a marker's beginning waits for the rest."""

    def __init__(self) -> None:
        self._thinking = False
        self._held = ""

    def __call__(self, event: Event) -> list[Event]:
        if isinstance(event, TextDelta):
            return self._split(self._held + event.text)
        held, self._held = self._said(self._held), ""
        return [*held, event]

    def _split(self, text: str) -> list[Event]:
        said: list[Event] = []
        while True:
            marker = END_THINK if self._thinking else THINK
            before, found, text = text.partition(marker)
            if not found:
                self._held = _beginning(before, marker)
                return said + self._said(before[: len(before) - len(self._held)])
            said += self._said(before)
            self._thinking = not self._thinking

    def _said(self, text: str) -> list[Event]:
        if not text:
            return []
        return [ReasoningDelta(text) if self._thinking else TextDelta(text)]


def _beginning(text: str, marker: str) -> str:
    """How much of the marker the text ends with."""
    return next((marker[:n] for n in range(len(marker) - 1, 0, -1) if text.endswith(marker[:n])), "")
