"""What goes in comes back the same on both engines, and is never what one of them refuses or cuts."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.database import connection
from db.document import CONVERSATIONS
from db.jsontext import IntegerTooBig, clean, clean_json, clean_text, dumps, loads, size
from db.models import Dialog

ANY_TEXT = st.text() | st.text(
    st.sampled_from(["\x00", "\ud800", "\udc00", "\ud83d", "\ude00", "a", "é", "u", "0", "\\", '"', "\u2028", "😀"])
)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats()
# jsonb writes 1e16 as 10000000000000000: the same number, but Python reads an integer.
JSONB_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(-1e15, 1e15) | st.sampled_from([math.nan, math.inf])


def values_of(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | numbers | ANY_TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4), max_leaves=12,
    )


VALUES = values_of(NUMBERS)


def reference_text(text: str) -> str:
    """The rule by other means: halves joined, lonely ones replaced, U+0000 gone."""
    text = text.replace("\x00", "")
    joined = re.sub(
        "[\ud800-\udbff][\udc00-\udfff]",
        lambda pair: chr(0x10000 + ((ord(pair[0][0]) - 0xD800) << 10) + ord(pair[0][1]) - 0xDC00), text,
    )
    return re.sub("[\ud800-\udfff]", "\ufffd", joined)


@pytest.mark.parametrize(("text", "cleaned"), [
    ('{"b": 1.50, "a":\t"\\n \\\\n"}', None), ("[1e3, 12345678901234567890123]", None),
    ('["a\\u0000b"]', '["ab"]'), ('["\\ud800"]', '["\ufffd"]'), ('["\\ud83d\\ude00"]', None), ("[NaN]", "[null]"),
])
def test_a_text_that_an_engine_would_refuse_is_cleaned_and_every_other_stays(text: str, cleaned: str | None) -> None:
    assert clean_json(text.encode()).decode() == (text if cleaned is None else cleaned)


@pytest.mark.parametrize("text", ["[", "", "['a']"])
def test_a_text_that_is_no_json_is_not_cleaned(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1 column \d"):
        clean_json(text.encode())


class TestText:
    @pytest.mark.parametrize(("text", "kept"), [
        ("a\x00b", "ab"), ("\x00", ""), ("\ud83d\ude00", "😀"), ("\ud83d", "\ufffd"), ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud800a", "\ufffda"), ("\ud83d\x00\ude00", "😀"), ("\\u0000", "\\u0000"), ("plain é 😀", "plain é 😀"),
    ])
    def test_is_cleaned(self, text: str, kept: str) -> None:
        assert clean_text(text) == kept == loads(dumps(text))

    @given(ANY_TEXT)
    def test_follows_the_rule_whatever_it_is(self, text: str) -> None:
        assert clean_text(text) == reference_text(text)
        assert clean_text(clean_text(text)) == clean_text(text)


class TestValues:
    @given(VALUES)
    def test_are_written_as_strict_json_that_any_database_takes(self, value: Any) -> None:
        text = dumps(value)
        assert "\x00" not in text
        read = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert read == clean(value) == loads(text)

    @given(VALUES)
    def test_are_clean_after_one_cleaning(self, value: Any) -> None:
        assert dumps(clean(value)) == dumps(value)

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_that_are_no_numbers_become_null(self, number: float) -> None:
        assert dumps({"a": [number, 1.5]}) == '{"a":[null,1.5]}'
        assert dumps({"a": [number, "\x00"]}) == '{"a":[null,""]}'

    @pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
    @pytest.mark.parametrize("beside", ["", "\x00", "\ud800"])
    def test_of_64_bits_are_kept(self, number: int, beside: str) -> None:
        assert loads(dumps([number, beside]))[0] == number

    @pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**400])
    @pytest.mark.parametrize("beside", ["", "\x00", "\ud800"])
    def test_beyond_64_bits_are_refused_whatever_stands_beside(self, number: int, beside: str) -> None:
        with pytest.raises(IntegerTooBig, match="64 bits"):
            dumps({"a": [number, beside]})

    def test_keys_are_cleaned_too(self) -> None:
        assert loads(dumps({"a\x00": 1, "\ud800": 2, 3: 4})) == {"a": 1, "\ufffd": 2, "3": 4}

    def test_are_compact(self) -> None:
        assert dumps({"ä": [1, True, None, "日"]}) == '{"ä":[1,true,null,"日"]}'


class TestReading:
    @pytest.mark.parametrize(("text", "value"), [
        ('"a\\u0000b"', "ab"), ('"\\ud83d\\ude00"', "😀"), ('"\\ud83d"', "\ufffd"), 
        ("[NaN, Infinity, -Infinity]", [None] * 3),
        ('{"a\\u0000": 1}', {"a": 1}), ('"\\\\u0000"', "\\u0000"), (b'"\\u0000x"', "x"), (b"[1.5]", [1.5]),
    ])
    def test_cleans_what_another_program_wrote(self, text: str | bytes, value: Any) -> None:
        assert loads(text) == value

    @pytest.mark.parametrize("text", ["", "{", "words", "[1,]"])
    def test_of_no_json_is_an_error(self, text: str) -> None:
        with pytest.raises(json.JSONDecodeError):
            loads(text)


@given(st.lists(st.dictionaries(st.text(), NUMBERS | st.booleans(), max_size=3), max_size=3))
def test_size_counts_the_bytes_that_are_written(values: list[dict[str, Any]]) -> None:
    assert size(values) == sum(len(dumps({k: v for k, v in item.items() if k != "seq"}).encode()) for item in values)


@given(VALUES)
def test_size_takes_what_dumps_takes(value: Any) -> None:
    assert size([{"value": value}]) == len(dumps({"value": value}).encode())


class TestBothEngines:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(value=values_of(JSONB_NUMBERS))
    def test_give_a_documents_values_back(self, store, value: Any) -> None:
        with connection():
            id = CONVERSATIONS.create({"tenant_id": "acme", "dialog_id": "chat"}).id
            entry = {"role": "user", "content": dumps(value), "id": "t", "metadata": {"value": value}}
            CONVERSATIONS.append("acme", id, [entry])
            for whole in (CONVERSATIONS.load("acme", id), CONVERSATIONS.load_text("acme", id).parsed()):
                assert whole.entries[0]["metadata"] == clean({"value": value})
                assert whole.entries[0]["content"] == clean(dumps(value))

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(value=st.dictionaries(ANY_TEXT, VALUES, max_size=3))
    def test_give_a_chats_settings_back_byte_by_byte(self, store, value: Any) -> None:
        with connection():
            dialog = Dialog.create(
                tenant_id="acme", name="chat", name_key=str(id(value)), llm_id="m", prompt_config=value, status="0"
            )
            assert dumps(Dialog.get_by_id(dialog.id).prompt_config) == dumps(value)
