"""What a model says, fit to be shown and stored."""

from collections.abc import Iterable, Iterator

from db.jsontext import clean_text
from services.events import End, Event, ReasoningDelta, ReasoningEnd, ReasoningStart, TextDelta


def readable(events: Iterable[Event]) -> Iterator[Event]:
    """The same events with clean text, and reasoning between a start and an end.

    A surrogate half at a delta's end waits for the other half.
    """
    held, thinking = "", False
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            reasons = isinstance(event, ReasoningDelta)
            if reasons != thinking:
                if held:
                    yield (ReasoningDelta if thinking else TextDelta)(clean_text(held))
                    held = ""
                yield ReasoningStart() if reasons else ReasoningEnd()
                thinking = reasons
            text = held + event.text
            held = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
            text = clean_text(text[: len(text) - len(held)])
            if text:
                yield type(event)(text)
            continue
        if isinstance(event, End):
            break
        yield event
    else:
        event = End()
    if held:
        yield (ReasoningDelta if thinking else TextDelta)(clean_text(held))
    if thinking:
        yield ReasoningEnd()
    yield event
