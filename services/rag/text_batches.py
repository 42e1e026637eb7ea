"""Many texts for a model that reads only so many, and only so much of each."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from conf.settings import TextModelSettings
from db.jsontext import clean_text
from services.errors import ModelFailure
from services.events import ErrorCode
from services.rag.model_failures import failure

T = TypeVar("T")
SHORTEST = 100  # characters; a server that can't read these reads nothing


def in_batches(ask: Callable[[list[str]], list[T]], texts: Sequence[str], settings: TextModelSettings) -> list[T]:
    """What `ask` answers to all texts, in their order, each text cut to what is sent of one.

    No text is empty, because no server takes one. Raises what `ask` raises.
    """
    cut = [clean_text(text)[: settings.text_length] or " " for text in texts]
    batches = (cut[at : at + settings.batch] for at in range(0, len(cut), settings.batch))
    return [answer for batch in batches for answer in _fitted(ask, batch)]


def by_index(items: Any, count: int, value: Callable[[dict[str, Any]], T]) -> list[T]:
    """What a server answered to `count` texts, in their order. Raises ModelFailure unless it holds each once."""
    try:
        found = {item["index"]: value(item) for item in items}
        if len(items) != count or sorted(found) != list(range(count)):
            raise ValueError(f"{len(items)} answers, of {sorted(found)}, for {count} texts")
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise failure(ErrorCode.INVALID_RESPONSE, f"{type(error).__name__}: {error}") from None
    return [found[n] for n in range(count)]


def _fitted(ask: Callable[[list[str]], list[T]], texts: list[str]) -> list[T]:
    """Ask; where that is too long for the server, in halves: of the batch first, then of a text."""
    try:
        return ask(texts)
    except ModelFailure as error:
        if error.code is not ErrorCode.CONTEXT_TOO_LONG or (len(texts) == 1 and len(texts[0]) <= SHORTEST):
            raise
    if len(texts) == 1:
        return _fitted(ask, [texts[0][: len(texts[0]) // 2]])
    middle = len(texts) // 2
    return _fitted(ask, texts[:middle]) + _fitted(ask, texts[middle:])
