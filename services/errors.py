"""What can go wrong, in the domain's words. api/errors.py knows the code and status of each.

A message says what was wrong, with which value, and what would be right; it is safe for any client.
"""

from typing import Any

from db.document import DocumentConflict, DocumentMissing
from services.events import ErrorCode

__all__ = ["DocumentConflict", "DocumentMissing"]


class ChatkeepError(Exception):
    """The base of every domain error. `fields` go into the answer's data where the protocol has room."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class InvalidArgument(ChatkeepError):
    """A field's value breaks a rule."""


class InvalidData(ChatkeepError):
    """The request is well formed, but the stored data doesn't allow it."""


class Unreadable(InvalidData):
    """A file that can't become passages: broken, locked, not a text, or too much of one."""


class NotFound(InvalidData):
    """No such row among the caller's own."""


class NotOwned(ChatkeepError):
    """The chat is unknown or another tenant's: both look alike."""


class Unauthorized(ChatkeepError):
    """No token, or one that isn't valid (any more)."""


class Busy(ChatkeepError):
    """Another question of this session is being answered."""


class Unavailable(ChatkeepError):
    """The server can't take this now; `retry_after` seconds later it may."""


class TooLarge(ChatkeepError):
    """More bytes than the limit."""


class ModelFailure(ChatkeepError):
    """The model didn't answer. `message` is our sentence, `detail` the provider's text, for the log."""

    def __init__(self, code: ErrorCode, message: str, detail: str = "") -> None:
        super().__init__(message, error_code=code)
        self.code = code
        self.detail = detail
