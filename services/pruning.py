"""Pruning: what nobody can reach any more goes, once it has been so for the retention time, and only when it is asked.

That is a deleted chat with its sessions and embed tokens, and a token that was revoked or has expired.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from db.database import connection, fetch, transaction
from db.document import API4_CONVERSATIONS, CONVERSATIONS, PagedDocument
from db.models import ApiToken, Dialog, now_ms
from services.principal import Principal, owned_by

BATCH = 100  # sessions a transaction
_DOCUMENTS = (CONVERSATIONS, API4_CONVERSATIONS)


@dataclass(frozen=True, slots=True)
class Due:
    """How many of each are due, or were erased."""

    sessions: int
    chats: int
    tokens: int


class Pruning:
    """Over all tenants. `retention_days` count from a chat's deletion, a token's revocation or expiry."""

    def __init__(self, retention_days: int) -> None:
        self.before = now_ms() - retention_days * 86_400_000
        self._principal = Principal.system()

    def due(self) -> Due:
        """What `erase` would erase; changes nothing."""
        chats = self._chats(Dialog.id)
        tokens = ApiToken.select().where(
            owned_by(self._principal, ApiToken), self._is_over() | ApiToken.dialog_id.in_(chats)
        )
        with connection():
            sessions = sum(
                document.row.select().where(
                    owned_by(self._principal, document.row), document.row.dialog_id.in_(chats)
                ).count() for document in _DOCUMENTS
            )
            return Due(sessions, chats.count(), tokens.count())

    def erase(self, told: Callable[[int], None] = lambda sessions: None) -> Due:
        """Erase it in small transactions, with pauses that let others write; `told` hears of the sessions so far."""
        sessions = chats = tokens = 0
        with connection():
            deleted = list(self._chats())
        for chat in deleted:
            for document in _DOCUMENTS:
                while count := self._erase_sessions(document, chat):
                    sessions += count
                    told(sessions)
            embeds = self._erase_chat(chat)
            chats, tokens = chats + (embeds is not None), tokens + (embeds or 0)
        with connection():
            tokens += ApiToken.delete().where(  # type: ignore[misc]
                owned_by(self._principal, ApiToken), self._is_over()
            ).execute()
        return Due(sessions, chats, tokens)

    def _chats(self, *columns: Any) -> Any:
        return Dialog.select(*columns).where(
            owned_by(self._principal, Dialog), Dialog.status == "0", Dialog.update_time < self.before
        )

    def _is_over(self) -> Any:
        return (ApiToken.revoked_time < self.before) | (ApiToken.expires_time < self.before)

    def _hold(self, chat: Dialog) -> bool:
        """Whether the chat is still deleted; it stays so to the transaction's end."""
        return bool(fetch("SELECT 1 FROM {dialog} WHERE id = %s AND status = '0' AND update_time < %s{for_update}",
                          [chat.id, self.before]))

    def _erase_sessions(self, document: PagedDocument, chat: Dialog) -> int:
        began = time.monotonic()
        row, owner = document.row, Principal(chat.tenant_id)
        with connection(), transaction():
            if not self._hold(chat):
                return 0
            found = row.select(row.id).where(owned_by(owner, row), row.dialog_id == chat.id).limit(BATCH)
            ids = [session.id for session in found]
            erased = document.delete(chat.tenant_id, ids) if ids else set()
        time.sleep(time.monotonic() - began)  # SQLite's lock isn't fair: who waits needs a moment to find it free
        return len(erased)

    def _erase_chat(self, chat: Dialog) -> int | None:
        """The number of embed tokens that went with it; None where it stays, because it has a session again."""
        with connection(), transaction():
            held = [document.row.select().where(document.row.dialog_id == chat.id).exists() for document in _DOCUMENTS]
            if any(held) or not self._hold(chat):
                return None
            tokens: int = ApiToken.delete().where(  # type: ignore[misc]
                owned_by(Principal(chat.tenant_id), ApiToken), ApiToken.dialog_id == chat.id
            ).execute()
            Dialog.delete().where(  # type: ignore[misc]
                owned_by(Principal(chat.tenant_id), Dialog), Dialog.id == chat.id
            ).execute()
        return tokens
