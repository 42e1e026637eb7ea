"""Filters on documents' `meta_fields`, as RAGFlow writes them: which documents may be searched."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.database import connection
from db.jsontext import dumps
from db.models import DatasetDocument
from services.errors import InvalidArgument
from services.principal import Principal, owned_by

_SPELLINGS = {
    "is": "=", "==": "=", "not is": "≠", "!=": "≠", ">=": "≥", "<=": "≤", "startswith": "start with",
    "endswith": "end with",
}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda held, wanted: bool(held == wanted),
    "≠": lambda held, wanted: bool(held != wanted),
    ">": lambda held, wanted: bool(held > wanted),
    "<": lambda held, wanted: bool(held < wanted),
    "≥": lambda held, wanted: bool(held >= wanted),
    "≤": lambda held, wanted: bool(held <= wanted),
    "contains": lambda held, wanted: str(wanted) in str(held),
    "not contains": lambda held, wanted: str(wanted) not in str(held),
    "start with": lambda held, wanted: str(held).startswith(str(wanted)),
    "end with": lambda held, wanted: str(held).endswith(str(wanted)),
}
OPERATORS = (*_TESTS, "in", "not in", "empty", "not empty")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison. A document without the key has only the operator `empty` true."""

    key: str
    operator: str
    value: Any = ""

    def holds(self, meta_fields: Mapping[str, Any]) -> bool:
        held = meta_fields.get(self.key)
        values = [_folded(each) for each in (held if isinstance(held, list) else [held]) if each not in (None, "")]
        if self.operator in ("empty", "not empty"):
            return bool(values) is (self.operator == "not empty")
        if self.operator in ("in", "not in"):
            wanted = self.value.split(",") if isinstance(self.value, str) else self.value
            among = [_folded(each) for each in (wanted if isinstance(wanted, list) else [wanted])]
            return bool(values) and any(each in among for each in values) is (self.operator == "in")
        test, every = _TESTS[self.operator], self.operator in ("≠", "not contains")
        found = [test(*_alike(each, _folded(self.value))) for each in values]
        return bool(found) and (all(found) if every else any(found))


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that must hold all, or one of them."""

    conditions: Sequence[Condition]
    any_of: bool = False

    def holds(self, meta_fields: Mapping[str, Any]) -> bool:
        join = any if self.any_of else all
        return join(condition.holds(meta_fields) for condition in self.conditions)


def read_filter(value: Any) -> Filter | None:
    """The filter of a chat's `meta_data_filter` (with its method `manual`) or of a `metadata_condition`.

    None where nothing is to be filtered. Raises InvalidArgument for what is no filter.
    """
    if not value:
        return None
    if not isinstance(value, Mapping):
        raise InvalidArgument("a metadata filter must be an object")
    items = value.get("conditions", value.get("manual")) or []
    if not items or value.get("method") not in (None, "", "manual"):
        return None
    if not isinstance(items, list):
        raise InvalidArgument("the conditions of a metadata filter must be a list")
    if value.get("logic") not in (None, "", "and", "or"):
        raise InvalidArgument("the `logic` of a metadata filter must be `and` or `or`")
    return Filter([_condition(item) for item in items], value.get("logic") == "or")


def matching(principal: Principal, dataset_ids: Sequence[str], filters: Sequence[Filter]) -> list[str]:
    """Ids of the documents of these datasets that pass every filter."""
    with connection():
        rows = DatasetDocument.select(DatasetDocument.id, DatasetDocument.meta_fields).where(
            owned_by(principal, DatasetDocument), DatasetDocument.dataset_id.in_(list(dataset_ids))
        )
        return [row.id for row in rows if all(each.holds(row.meta_fields or {}) for each in filters)]


def _condition(item: Any) -> Condition:
    if not isinstance(item, Mapping):
        raise InvalidArgument("every condition of a metadata filter must be an object")
    key = item.get("key", item.get("name"))
    operator = item.get("op", item.get("comparison_operator", "="))
    operator = _SPELLINGS.get(operator, operator) if isinstance(operator, str) else operator
    if not isinstance(key, str) or not key:
        raise InvalidArgument("every condition of a metadata filter needs the `name` of a field")
    if operator not in OPERATORS:
        shown = dumps(operator)[:80]
        raise InvalidArgument(f"a metadata filter compares by one of {', '.join(OPERATORS)}, not {shown}")
    return Condition(key, operator, item.get("value", ""))


def _folded(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def _alike(held: Any, wanted: Any) -> tuple[Any, Any]:
    """Both as numbers where both are, else both as texts: ISO dates compare right as such."""
    try:
        return float(held), float(wanted)
    except (TypeError, ValueError):
        return str(held), str(wanted)
