"""Filters on documents' fields, operator by operator."""

from typing import Any

import pytest

from services.errors import InvalidArgument
from services.knowledge.metadata import Condition, read_filter

HELD: dict[str, Any] = {"year": 2023, "name": "Blue Whale", "tags": ["Sea", "big"], "day": "2024-05-01", "none": None}


@pytest.mark.parametrize(("key", "operator", "value", "holds"), [
    ("year", "=", "2023", True), ("year", "=", 2023.0, True), ("year", "≠", 2023, False), ("year", ">", "999", True),
    ("year", "<", 2023, False), ("year", "≥", 2023, True), ("year", "≤", "2022", False),
    ("name", "=", " blue whale ", True), ("name", "contains", "WHALE", True), ("name", "not contains", "whale", False),
    ("name", "start with", "blue", True), ("name", "end with", "blue", False),
    ("tags", "=", "sea", True), ("tags", "≠", "sea", False), ("tags", "contains", "i", True),
    ("tags", "in", "land,sea", True), ("tags", "in", ["air"], False), ("tags", "not in", ["air"], True),
    ("day", ">", "2024-04-30", True), ("day", "<", "2024-04-30", False),
    ("none", "empty", "", True), ("none", "not empty", "", False), ("tags", "not empty", "", True),
    ("unknown", "empty", "", True), ("unknown", "≠", "x", False), ("unknown", "not in", ["x"], False),
    ("unknown", "not contains", "x", False), ("year", ">", "many", False), ("year", "=", None, False),
])
def test_a_condition_holds_or_not(key: str, operator: str, value: Any, holds: bool) -> None:
    assert Condition(key, operator, value).holds(HELD) is holds


@pytest.mark.parametrize(("given", "holds"), [
    ({"method": "manual", "manual": [{"key": "year", "op": "=", "value": 2023}]}, True),
    ({"conditions": [{"name": "year", "comparison_operator": "not is", "value": 2023}]}, False),
    ({"logic": "or", "conditions": [{"name": "year", "comparison_operator": "is", "value": 1},
                                    {"name": "tags", "comparison_operator": "is", "value": "big"}]}, True),
    ({"logic": "and", "conditions": [{"name": "year", "comparison_operator": "is", "value": 1},
                                     {"name": "tags", "comparison_operator": "is", "value": "big"}]}, False),
])
def test_both_spellings_are_read(given: Any, holds: bool) -> None:
    found = read_filter(given)
    assert found is not None
    assert found.holds(HELD) is holds


@pytest.mark.parametrize("given", [None, {}, {"method": "disabled"}, {"conditions": []}, {"manual": None}])
def test_nothing_to_filter_is_no_filter(given: Any) -> None:
    assert read_filter(given) is None


@pytest.mark.parametrize("given", [
    {"conditions": "x"}, {"conditions": ["x"]}, {"conditions": [{"value": 1}]}, {"conditions": [{"name": 5}]},
    {"conditions": [{"name": "a", "comparison_operator": "like"}]},
    {"conditions": [{"name": "a", "comparison_operator": []}]}, {"conditions": [{"name": "a"}], "logic": "xor"},
])
def test_what_is_no_filter_is_refused_in_a_sentence(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="metadata filter"):
        read_filter(given)
