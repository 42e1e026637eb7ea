"""The door: bytes become a clean JSON object or a refusal that says what is wrong with them."""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NoReturn

from flask import Request, current_app, request
from gunicorn.http.errors import ParseException
from pydantic import Field
from typing_extensions import TypedDict
from werkzeug.datastructures import FileStorage, MultiDict
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.formparser import FormDataParser
from werkzeug.utils import cached_property

from api.wire import body_awaited
from conf.settings import LimitSettings
from db.jsontext import IntegerTooBig, clean
from services.errors import InvalidArgument, TooLarge

_PARTS = 10_000  # of a form; those that are left over are closed by nobody but the collector
_FAR = 10**9  # a page beyond every list, and a number that every database takes
PAGE_SIZE, MOST_ROWS = 30, 100
MALFORMED = "Malformed JSON syntax: Missing commas/brackets or invalid encoding"
BROKEN_TRANSFER = "the body could not be read: its transfer is broken off, or its encoding is wrong"
STRING_BODY = "AttributeError(\"'str' object has no attribute 'get'\")"  # clients compare it


# What `strip` leaves something of, said as a pattern that each dialect reads alike.
VISIBLE = r"[^\s\u001c-\u001f\u0085]"

# The types of fields that many bodies have, each as the function of its name below reads it.
Flag = bool | Literal[0, 1, "true", "false"] | None
Name = Annotated[str, Field(json_schema_extra={"maxLength": "limits.text_length"})]
Id = Annotated[str, Field(min_length=1)]
IdList = Annotated[list[Id], Field(json_schema_extra={"maxItems": "limits.ids"})] | None


class Deletion(TypedDict, total=False):
    """What goes: these ids, or with `delete_all` true all of them. Neither deletes nothing."""

    ids: IdList
    delete_all: Any


class Paging(TypedDict, total=False):
    """One page of a list."""

    page: Annotated[int, Field(ge=1, description="1 where absent")]
    page_size: Annotated[int, Field(ge=1, le=MOST_ROWS, description=f"{PAGE_SIZE} where absent")]


class StringBody(Exception):
    """The body is a JSON text; RAGFlow answers it with a literal that clients compare."""


def without_nul(text: str) -> str:
    """A text of the URL as a database takes it: U+0000 becomes U+FFFD, so that it matches nothing."""
    return text.replace("\x00", "\ufffd")


class StrictForms(FormDataParser):
    """Raises ValueError for a form that is broken, which by itself counts as an empty one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"silent": False})


class CleanRequest(Request):
    """A request whose query any database takes."""

    form_data_parser_class = StrictForms

    @cached_property
    def args(self) -> MultiDict[str, str]:
        return MultiDict([(key, without_nul(value)) for key, value in super().args.items(multi=True)])


def limits() -> LimitSettings:
    found: LimitSettings = current_app.extensions["chatkeep"].settings.limits
    return found


def read_object(limit: int | None = None) -> dict[str, Any]:
    """The body's JSON object; no body is an empty one, a form's fields are texts.

    Raises TooLarge, InvalidArgument, StringBody. Cleaned: no NUL, no lone surrogate, no NaN.
    """
    raw = _raw(limit or limits().body_bytes)
    if request.mimetype == "application/x-www-form-urlencoded":
        return _form()
    if not raw.strip():
        return {}
    if request.mimetype != "application/json":
        raise InvalidArgument(
            f"Content-Type is {request.mimetype or 'missing'!r}; a JSON body needs application/json"
        )
    value = _parse(raw)
    if isinstance(value, str):
        raise StringBody
    if not isinstance(value, dict):
        raise InvalidArgument(f"the JSON body is {_kind(value)}; it must be an object")
    return clean(value)  # type: ignore[no-any-return]


def _form() -> dict[str, Any]:
    try:
        return clean(request.form.to_dict())  # type: ignore[no-any-return]
    except ValueError:
        raise InvalidArgument("the form could not be read: it isn't UTF-8") from None


def read_files() -> list[tuple[str, FileStorage]]:
    """The files of a form: their names, without folders, and contents still to be read.

    Raises TooLarge, InvalidArgument.
    """
    request.max_content_length = limits().upload_bytes
    request.max_form_parts = _PARTS
    try:
        with body_awaited():
            uploads = request.files.getlist("file")
    except RequestEntityTooLarge:
        uploads = None
    except (OSError, ParseException, ClientDisconnected):
        raise InvalidArgument(BROKEN_TRANSFER) from None
    except ValueError:
        raise InvalidArgument(
            "the form could not be read: it is cut off, its boundary isn't the one that it names, or a name isn't UTF-8"
        ) from None
    if uploads is None or len(uploads) > limits().files:
        raise TooLarge(
            f"an upload has at most {limits().upload_bytes} bytes and {limits().files} files; send it in parts"
        )
    found = [(re.split(r"[/\\]", upload.filename or "")[-1], upload) for upload in uploads]
    if not found:
        raise InvalidArgument("No file part!")
    if any(not name for name, _ in found):
        raise InvalidArgument("No file selected!")
    return found


def _raw(limit: int) -> bytes:
    request.max_content_length = limit + 1  # a body without a length is cut there, silently
    try:
        with body_awaited():
            raw = request.get_data(cache=True)
    except (OSError, ParseException, ClientDisconnected):  # chunks that aren't HTTP's, or end too early
        raise InvalidArgument(BROKEN_TRANSFER) from None
    if len(raw) > limit:
        raise TooLarge(f"the body is larger than {limit} bytes")
    return raw


def _parse(raw: bytes) -> Any:
    try:
        value = json.loads(raw)
    except RecursionError:
        _too_deep()
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise InvalidArgument(MALFORMED) from None
    except ValueError:  # an integer of more digits than Python converts
        raise IntegerTooBig("an integer in the body is beyond 64 bits") from None
    level, depth = _containers([value]), 0
    while level:
        depth += 1
        if depth > limits().json_depth:
            _too_deep()
        level = _containers(child for item in level for child in _children(item))
    return value


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _children(item: dict[str, Any] | list[Any]) -> list[Any]:
    return list(item.values()) if isinstance(item, dict) else item


def _too_deep() -> NoReturn:
    raise InvalidArgument(f"the JSON body is nested deeper than {limits().json_depth} levels")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {list: "an array", bool: "a boolean"}.get(type(value), "a number")


def text_field(body: dict[str, Any], name: str) -> str | None:
    """An optional text of 1 to 255 characters; empty counts as absent. Raises InvalidArgument."""
    value = body.get(name)
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"`{name}` must be a text, not {_kind_of(value)}")
    if len(value) > limits().text_length:
        raise InvalidArgument(f"`{name}` has {len(value)} characters; at most {limits().text_length} are allowed")
    return value


def _kind_of(value: Any) -> str:
    return "an object" if isinstance(value, dict) else _kind(value)


def flag(body: dict[str, Any], *names: str, default: bool, words: bool = False) -> bool:
    """A switch: booleans, 0 and 1, the texts true and false; absent or null is the default.

    The first of `names` that is there counts; `words` are yes, no, on and off. Raises InvalidArgument.
    """
    name = next((name for name in names if body.get(name) is not None), None)
    if name is None:
        return default
    value = body[name]
    word = value.strip().lower() if isinstance(value, str) else value
    if isinstance(word, bool) or (isinstance(word, int) and word in (0, 1)):
        return bool(word)
    if word in ("true", "1") or (words and word in ("yes", "on")):
        return True
    if word in ("false", "0") or (words and word in ("no", "off")):
        return False
    raise InvalidArgument(f"`{name}` must be true or false, not {shown(value)}")


def shown(value: Any) -> str:
    """A client's value as JSON, short enough for a sentence about it."""
    return json.dumps(value)[:80]


def ids_of(body: dict[str, Any], name: str = "ids") -> list[str]:
    """A list of ids, as sent, with repeats. Raises InvalidArgument, InvalidData for an item that is no text."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidArgument(f"`{name}` must be a list of ids, not {shown(value)}")
    if len(value) > limits().ids:
        raise InvalidArgument(f"`{name}` holds {len(value)} ids; at most {limits().ids} are allowed in one call")
    return value


def paging() -> tuple[int, int]:
    """`page` and `page_size` of a list: 1 and 30 where absent or no positive number. Raises InvalidArgument."""
    size = _positive(request.args.get("page_size"), PAGE_SIZE)
    if size > MOST_ROWS:
        raise InvalidArgument(f"page_size must be less than or equal to {MOST_ROWS}")
    return _positive(request.args.get("page"), 1), size


def _positive(text: str | None, default: int) -> int:
    try:
        number = int(text or default)
    except ValueError:
        return default
    return min(number, _FAR) if number > 0 else default


def descending() -> bool:
    """`desc`: anything but the text false, in any case."""
    return request.args.get("desc", "true").strip().lower() != "false"
