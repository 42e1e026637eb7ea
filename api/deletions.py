"""RAGFlow's report of a bulk deletion: what went, what wasn't there, which ids came twice."""

from collections.abc import Callable
from typing import Any

from flask import Response
from typing_extensions import TypedDict

from api.responses import success
from services.errors import InvalidData


class Report(TypedDict, total=False):
    """How many went; `errors` has a sentence for each id that didn't. Empty where nothing was named."""

    success_count: int
    errors: list[str]


class Deleted(Report, total=False):
    deleted: int


def report(
    ids: list[Any], delete: Callable[[list[str]], set[str]], noun: str, missing: str,
    *, done: Callable[[int], Any],
) -> Response:
    """Delete each id once. All fine: `done`; some: a count with errors; none: InvalidData with the errors.

    Raises InvalidData before anything is deleted where an item is no text.
    """
    wrong = next((item for item in ids if not isinstance(item, str) or not item), None)
    if wrong is not None or None in ids:
        raise InvalidData(f"every {noun} id in the list must be a text, and not an empty one")
    wanted = list(dict.fromkeys(ids))
    deleted = delete(wanted)
    errors = [missing.format(id=id) for id in wanted if id not in deleted]
    errors += [f"Duplicate {noun} ids: {id}" for id in wanted if ids.count(id) > 1]
    if not errors:
        return success(done(len(deleted)))
    if not deleted:
        raise InvalidData("; ".join(errors))
    return success(
        {"success_count": len(deleted), "errors": errors},
        f"Partially deleted {len(deleted)} {noun}s with {len(errors)} errors",
    )
