"""RAGFlow's report of what was done to many rows by id: to how many, which weren't there, which ids came twice."""

from collections.abc import Callable
from typing import Any

from flask import Response
from typing_extensions import TypedDict

from api.responses import success
from services.errors import InvalidData


class Report(TypedDict, total=False):
    """With how many it was done; `errors` has a sentence for each id without. Empty where nothing was named."""

    success_count: int
    errors: list[str]


class Deleted(Report, total=False):
    deleted: int


def report(
    ids: list[Any], change: Callable[[list[str]], set[str]], noun: str, missing: str,
    *, done: Callable[[int], Any], verb: str = "deleted",
) -> Response:
    """Change the row of each id once. All fine: `done`; some: a count with errors; none: InvalidData with the errors.

    `change` tells the ids that were there. Raises InvalidData before anything is changed where an item is no text.
    """
    wrong = next((item for item in ids if not isinstance(item, str) or not item), None)
    if wrong is not None or None in ids:
        raise InvalidData(f"every {noun} id in the list must be a text, and not an empty one")
    wanted = list(dict.fromkeys(ids))
    changed = change(wanted)
    errors = [missing.format(id=id) for id in wanted if id not in changed]
    errors += [f"Duplicate {noun} ids: {id}" for id in wanted if ids.count(id) > 1]
    if not errors:
        return success(done(len(changed)))
    if not changed:
        raise InvalidData("; ".join(errors))
    return success(
        {"success_count": len(changed), "errors": errors},
        f"Partially {verb} {len(changed)} {noun}s with {len(errors)} errors",
    )
