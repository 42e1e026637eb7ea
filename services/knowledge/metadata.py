"""Filters on documents' `meta_fields`, as RAGFlow writes them: which documents may be searched.

Two values are equal, or in order, as numbers where both are numbers in JSON's spelling (`2024`, `"2024"`), exactly;
else as texts, trimmed and without case, a value that is no text as JSON writes it. Text operators know texts alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
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
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,4})?")  # folded; `007` is none, nor is `1_0`
# Of two folded texts.
_IN_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda held, wanted: bool(held == wanted),
    "≠": lambda held, wanted: bool(held != wanted),
    ">": lambda held, wanted: bool(held > wanted),
    "<": lambda held, wanted: bool(held < wanted),
    "≥": lambda held, wanted: bool(held >= wanted),
    "≤": lambda held, wanted: bool(held <= wanted),
}
_TEXTUAL: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda held, wanted: wanted in held,
    "not contains": lambda held, wanted: wanted not in held,
    "start with": str.startswith,
    "end with": str.endswith,
}
_NEGATIVE = ("≠", "not contains", "not in")
OPERATORS = (*_IN_ORDER, *_TEXTUAL, "in", "not in", "empty", "not empty")


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
        tests = [_test(self.operator, each, wanted) for each in values for wanted in self._wanted()]
        if self.operator in _NEGATIVE:
            return bool(values) and all(tests)
        return any(tests)

    def _wanted(self) -> list[str]:
        """The values that one of must hold, or with a negative operator all; null is none: nothing equals it."""
        wanted = self.value
        if self.operator in ("in", "not in"):
            wanted = wanted.split(",") if isinstance(wanted, str) else wanted
            return [_folded(each) for each in (wanted if isinstance(wanted, list) else [wanted]) if each is not None]
        return [] if wanted is None else [_folded(wanted)]


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


def _folded(value: Any) -> str:
    return (value.strip() if isinstance(value, str) else dumps(value)).casefold()


def _test(operator: str, held: str, wanted: str) -> bool:
    if operator in _TEXTUAL:
        return _TEXTUAL[operator](held, wanted)
    compare = _IN_ORDER[{"in": "=", "not in": "≠"}.get(operator, operator)]
    if _NUMBER.fullmatch(held) and _NUMBER.fullmatch(wanted):
        return compare(Decimal(held), Decimal(wanted))
    return compare(held, wanted)
