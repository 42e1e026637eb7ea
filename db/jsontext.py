"""JSON as the database may hold it: one function cleans what goes in, alike on both engines.

U+0000 goes (PostgreSQL refuses it, SQLite cuts the text there), surrogate halves are joined and an
unpaired one becomes U+FFFD, NaN and Infinity become null, an integer beyond 64 bits is an error.
"""

import json
import math
import re
from typing import Any

import orjson

_SURROGATES = re.compile("[\ud800-\udfff]")
_MANY_DIGITS = re.compile(rb"[0-9]{19}")
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1


class IntegerTooBig(ValueError):
    """An integer that 64 bits can't hold."""


def clean_text(text: str) -> str:
    """`text` without U+0000, its surrogate halves joined, an unpaired one replaced by U+FFFD."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(value: Any) -> Any:
    """A copy of a JSON value that both engines store and read back the same.

    Raises IntegerTooBig.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
        raise IntegerTooBig(f"an integer of {len(hex(value)) - 2} hexadecimal digits is beyond 64 bits")
    return value


def dumps(value: Any) -> str:
    """Compact JSON text of a value, cleaned. Raises IntegerTooBig."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # a surrogate, or an integer beyond 64 bits
        return orjson.dumps(clean(value)).decode()
    if b"\\u0000" in text or _MANY_DIGITS.search(text):  # perhaps a NUL, or an integer of 64 bits without a sign
        text = orjson.dumps(clean(value))
    return text.decode()


def loads(text: str | bytes) -> Any:
    """The value of a JSON text; what another program left in it (NUL, NaN, surrogates) comes back clean."""
    escaped = b"\\u0000" if isinstance(text, bytes) else "\\u0000"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return clean(json.loads(text))
    return clean(value) if escaped in text else value  # type: ignore[operator]


def clean_json(text: bytes) -> bytes:
    """A JSON text itself, or that of its value, cleaned, where an engine would refuse it. Raises ValueError."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return dumps(loads(text)).encode()
    return dumps(loads(text)).encode() if b"\\u0000" in text else text


def size(values: list[dict[str, Any]]) -> int:
    """UTF-8 bytes of the values' compact JSON, each without its `seq`: what the byte counters count."""
    return sum(
        len(dumps({key: item for key, item in value.items() if key != "seq"}).encode()) for value in values
    )
