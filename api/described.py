"""What a route takes and gives, said beside it in types; openapi.py makes the document of them.

The types only describe; what validates is the list of checks that stands beside them. Bounds come from the
constants that the checks use, or are the name of a limit in the settings, whose value the document shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

View = TypeVar("View", bound=Callable[..., Any])

# The ids of the document's examples. Where rows have them, every example is a request that succeeds.
EXAMPLE_IDS = {
    name: f"0194c0de00007000800000000000{number:04x}" for number, name in enumerate((
        "chat_id", "session_id", "message_id", "run_id", "dataset_id", "document_id", "chunk_id", "id_or_secret",
    ), start=1)
}


@dataclass(frozen=True, slots=True)
class Described:
    """`answer` is what a success answers: the envelope's `data`, where the route has an envelope.

    `beside` are more keys of that envelope, `frame` is an event of its stream, `refusal` the shape of what isn't a
    success, `statuses` are refusals that the kind of the route doesn't tell, `media` the types of an answer that
    is no JSON.
    """

    answer: Any = Any
    body: Any = None
    query: Any = None
    headers: Any = None
    example: dict[str, Any] | None = None
    beside: dict[str, Any] = field(default_factory=dict)
    frame: Any = None
    refusal: Any = None
    files: bool = False
    statuses: tuple[int, ...] = ()
    media: tuple[str, ...] = ()


def described(answer: Any = Any, **more: Any) -> Callable[[View], View]:
    """Say what a view takes and gives, in the fields of Described."""

    def note(view: View) -> View:
        vars(view)["described"] = Described(answer, **more)
        return view

    return note


def description(view: Callable[..., Any]) -> Described:
    """What was said of a view; nothing was: it answers something."""
    said: Described = vars(view).get("described", Described())
    return said
