"""Sessions of embedded pages and agents: the same documents, and statistics beside them."""

from collections.abc import Sequence
from typing import Any

from db.database import connection
from db.document import API4_CONVERSATIONS, Appended
from db.models import API4Conversation
from services.conversation_service import ConversationService
from services.principal import Principal
from services.runs.rows import statistics


class API4ConversationService(ConversationService):
    """The rows of `api_4_conversation`."""

    row = API4Conversation
    document = API4_CONVERSATIONS

    @classmethod
    def append_message(
        cls, principal: Principal, id: str, entries: Sequence[dict[str, Any]],
        slot: dict[str, Any] | None = None, tokens: int = 0, duration: float = 0.0,
        error_code: str | None = None,
    ) -> Appended:
        """Append a turn's entries, with its answer the slot, and count it in the same UPDATE.

        `round` rises by one with an answer, `tokens` and `duration` (seconds) add up, `errors` holds
        the last error's code. Raises NotFound where the session isn't the caller's.
        """
        cls.get_by_id(principal, id)
        answered = any(entry["role"] == "assistant" for entry in entries)
        counted = statistics(answered=answered, tokens=tokens, duration=duration, error_code=error_code)
        with connection():
            return cls.document.append(
                principal.tenant_id, id, entries, [slot] if slot is not None else [], **counted
            )

    @classmethod
    def _voted(cls, session_id: str, difference: int) -> None:
        cls.row.update(thumb_up=API4Conversation.thumb_up + difference).where(cls.row.id == session_id).execute()
