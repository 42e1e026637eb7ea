"""Ids: 32 hexadecimal characters, RAGFlow's shape.

New ids are UUIDv7: ordered by time, no MAC address inside. A channel's session id is a digest, so
that every replica finds the same row without asking.
"""

import hashlib

from uuid_utils import uuid7


def new_id() -> str:
    """A UUIDv7 as 32 lowercase hex characters; later ids of one process sort after earlier ones."""
    return uuid7().hex


def channel_session_id(dialog_id: str, channel_id: str, chat_id: str) -> str:
    """The session of one platform chat: the first 32 hex characters of SHA-256 of `dialog:channel:chat`."""
    return hashlib.sha256(_channel_key(dialog_id, channel_id, chat_id)).hexdigest()[:32]


def legacy_channel_session_id(dialog_id: str, channel_id: str, chat_id: str) -> str:
    """The same session's id in older stores: MD5 of the same text."""
    return hashlib.md5(_channel_key(dialog_id, channel_id, chat_id), usedforsecurity=False).hexdigest()


def _channel_key(dialog_id: str, channel_id: str, chat_id: str) -> bytes:
    return f"{dialog_id}:{channel_id}:{chat_id}".encode()
