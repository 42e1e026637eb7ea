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


@pytest.mark.parametrize(("held", "operator", "value", "holds"), [
    ("2024", "contains", "20", True), ("2024", "not contains", "20", False), (2024, "contains", 20, True),
    ("2024", "start with", "20", True), (2024, "start with", "20", True), ("2024", "end with", "24", True),
    ("007", "start with", "00", True), ("007", "end with", 7, True), ("10.50", "contains", "50", True),
    ("1.10", "contains", "1.10", True), (2023, "contains", "2023.0", False), (2.5, "end with", ".5", True),
    (True, "start with", "tr", True), ({"unit": "kg"}, "contains", '"KG"', True), ("none", "contains", None, False),
    ("null", "start with", None, False), ("a", "not contains", None, True), ("a", "contains", "", True),
])
def test_text_operators_work_on_texts_a_number_being_as_json_writes_it(
    held: Any, operator: str, value: Any, holds: bool
) -> None:
    assert Condition("key", operator, value).holds({"key": held}) is holds


_ALIKE: list[tuple[Any, Any]] = [
    (2023, "2023"), (2023, 2023.0), ("2023", 2023.0), ("2.50", 2.5), ("1e3", 1000), (0, "0"), (-7, "-7"), (0.1, "0.1"),
    (True, "true"), (False, "FALSE"), ("true", True), (True, True), ("007", "007"), ("A", " a "), ("nan", "NaN"),
    (9007199254740993, "9007199254740993"), ("20240101000000001", 20240101000000001),
]
_UNLIKE: list[tuple[Any, Any]] = [
    (9007199254740993, 9007199254740992), ("20240101000000001", "20240101000000002"),
    ("12345678901234567890", "12345678901234567891"), (9007199254740993, 9007199254740992.0), (True, 1), (True, "1"),
    (False, 0), (True, False), ("007", "7"), ("007", 7), ("1_000", "1000"), ("inf", "Infinity"), ("٣", 3), ("0x10", 16),
    ("a", None), ("null", None), ("none", None), ("a", ["a"]), ("a", {"a": 1}),
]


@pytest.mark.parametrize(("held", "wanted", "alike"), [
    *((held, wanted, True) for held, wanted in _ALIKE), *((held, wanted, False) for held, wanted in _UNLIKE),
])
def test_what_is_equal_is_equal_under_each_operator_and_whole_numbers_are_exact(
    held: Any, wanted: Any, alike: bool
) -> None:
    def holds(operator: str, value: Any) -> bool:
        return Condition("key", operator, value).holds({"key": held})

    assert (holds("=", wanted), holds("≠", wanted)) == (alike, not alike)
    if not isinstance(wanted, list):
        assert (holds("in", ["?", wanted]), holds("not in", ["?", wanted])) == (alike, not alike)
    if isinstance(wanted, int | float | str):
        text = str(wanted).lower() if isinstance(wanted, bool) else str(wanted)
        assert (holds("in", f"?, {text}"), holds("not in", f"?, {text}")) == (alike, not alike)
        assert holds("in", wanted) is alike


@pytest.mark.parametrize(("lesser", "greater"), [
    ("9", "10"), (999, "2023"), (9007199254740992, 9007199254740993), ("20240101000000001", "20240101000000002"),
    (9007199254740992.0, 9007199254740993), ("1e3", "1e4"), ("-1e9999", "1e9999"), ("2024-04-30", "2024-05-01"),
    ("9", "abc"), (-2, "-1.5"),
])
def test_numbers_are_in_the_order_of_numbers_and_all_else_in_that_of_texts(lesser: Any, greater: Any) -> None:
    for operator, rising, falling in ((">", False, True), ("≥", False, True), ("<", True, False), ("≤", True, False)):
        assert Condition("key", operator, greater).holds({"key": lesser}) is rising
        assert Condition("key", operator, lesser).holds({"key": greater}) is falling


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
