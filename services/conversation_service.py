"""Sessions: list, page, find or create them. Their documents are read and written through db/document."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from peewee import IntegrityError

from db.database import connection, transaction
from db.document import CONVERSATIONS, DEFAULT_NAME, DocumentText, Loaded, PagedDocument
from db.ids import channel_session_id, legacy_channel_session_id
from db.models import Conversation, Dialog, DocumentRow, touched
from services.dialog_service import ordered
from services.errors import InvalidArgument, InvalidData, NotFound
from services.messages import configured
from services.principal import Principal, owned_by
from services.runs.rows import RunService

NAME_LENGTH = 255  # characters; longer names are cut
_NOT_FOUND = "Session not found!"
_NOT_COLUMNS = {"message", "reference", "revision", "next_seq", "message_count", "page_count", "open_bytes",
                "document_bytes", "format", "tenant_id", "id"}


class ConversationService:
    """The rows of `conversation`. Every method takes the principal first."""

    row: ClassVar[type[DocumentRow]] = Conversation
    document: ClassVar[PagedDocument] = CONVERSATIONS

    @classmethod
    def create(
        cls, principal: Principal, dialog: Dialog, name: str | None = None, user_id: str | None = None,
        **columns: Any,
    ) -> DocumentRow:
        """A new session that begins with the chat's prologue, where it has one."""
        prologue = configured(dialog.prompt_config.get("prologue"))
        with connection(), transaction():
            return cls.document.create(
                {
                    "tenant_id": principal.tenant_id, "dialog_id": dialog.id, "user_id": user_id,
                    "name": clip(name or DEFAULT_NAME),
                    "name_source": "user" if name and name != DEFAULT_NAME else "default",  # the SDK's own default
                } | columns,
                prologue,
            )

    @classmethod
    def get_list(
        cls, principal: Principal, dialog_id: str, page: int = 1, page_size: int = 30,
        orderby: str = "create_time", desc: bool = True, id: str = "", name: str = "", user_id: str = "",
    ) -> list[DocumentRow]:
        """One page of a chat's sessions, without their documents. Filters match whole; empty ones don't."""
        query = cls._light(principal).where(cls.row.dialog_id == dialog_id)
        if id:
            query = query.where(cls.row.id == id)
        if name:
            query = query.where(cls.row.name == name)
        if user_id:
            owner = cls.row.user_id == user_id
            if user_id == principal.tenant_id:  # shown as the owner of sessions without a user
                owner |= cls.row.user_id.is_null()
            query = query.where(owner)
        with connection():
            return list(ordered(query, cls.row, orderby, desc).paginate(page, page_size))

    @classmethod
    def get_by_id(cls, principal: Principal, session_id: str) -> DocumentRow:
        """One session, without its document. Raises NotFound."""
        with connection():
            found: DocumentRow | None = cls._light(principal).where(cls.row.id == session_id).first()
        if found is None:
            raise NotFound(_NOT_FOUND)
        return found

    @classmethod
    def get_in_chat(cls, principal: Principal, dialog_id: str, session_id: str) -> DocumentRow:
        """One session of this chat. Raises NotFound."""
        found = cls.get_by_id(principal, session_id)
        if found.dialog_id != dialog_id:
            raise NotFound(_NOT_FOUND)
        return found

    @classmethod
    def get_all_conversation_by_dialog_ids(cls, principal: Principal, ids: Sequence[str]) -> list[DocumentRow]:
        """The sessions of any number of chats, without their documents; asked 100 chats at a time."""
        found: list[DocumentRow] = []
        with connection():
            for begin in range(0, len(ids), 100):
                batch = list(ids[begin : begin + 100])
                found.extend(cls._light(principal).where(cls.row.dialog_id.in_(batch)))
        return found

    @classmethod
    def update_by_id(cls, principal: Principal, session_id: str, fields: Mapping[str, Any]) -> DocumentRow:
        """Change the row's own columns. Raises NotFound, and ValueError for a column of the document."""
        wrong = sorted(name for name in fields if name in _NOT_COLUMNS)
        if wrong:
            raise ValueError(f"{wrong[0]!r} belongs to the document; it changes by appends and edits only")
        unknown = sorted(set(fields) - set(cls.row._meta.fields))
        if unknown:
            raise InvalidArgument(f"a session has no field {unknown[0]!r}")
        with connection():
            changed = cls.row.update(dict(fields) | touched()).where(
                owned_by(principal, cls.row), cls.row.id == session_id
            ).execute()
        if not changed:
            raise NotFound(_NOT_FOUND)
        return cls.get_by_id(principal, session_id)

    @classmethod
    def delete(cls, principal: Principal, dialog_id: str, ids: Sequence[str]) -> set[str]:
        """Erase sessions of this chat, 100 a transaction; the ids that were there."""
        deleted: set[str] = set()
        for begin in range(0, len(ids), 100):
            batch = list(ids[begin : begin + 100])
            with connection():
                mine = [row.id for row in cls._ids(principal, dialog_id).where(cls.row.id.in_(batch))]
                if mine:
                    deleted |= cls.document.delete(principal.tenant_id, mine)
        return deleted

    @classmethod
    def delete_all(cls, principal: Principal, dialog_id: str) -> int:
        """Erase every session of a chat, 100 a transaction; their number."""
        with connection():
            ids = [row.id for row in cls._ids(principal, dialog_id)]
        return len(cls.delete(principal, dialog_id, ids))

    @classmethod
    def text(cls, principal: Principal, session_id: str) -> DocumentText:
        """The document as JSON text. Raises DocumentMissing."""
        with connection():
            return cls.document.load_text(principal.tenant_id, session_id)

    @classmethod
    def texts(
        cls, principal: Principal, rows: Sequence[DocumentRow]
    ) -> Iterator[list[tuple[DocumentRow, DocumentText]]]:
        """The documents of listed sessions, batch by batch; no connection is held between two."""
        batches = cls.document.load_texts(principal.tenant_id, {row.id: row.document_bytes for row in rows})
        by_id = {row.id: row for row in rows}
        while True:
            with connection():
                batch = next(batches, None)
            if batch is None:
                return
            yield [(by_id[id], batch[id]) for id in by_id if id in batch]

    @classmethod
    def history(cls, principal: Principal, session_id: str, before: int, limit: int) -> Loaded:
        """The last `limit` entries before seq `before`, from the pages that hold them."""
        with connection():
            return cls.document.load_range(principal.tenant_id, session_id, max(before - limit, 1), before - 1)

    @classmethod
    def delete_turn(cls, principal: Principal, session_id: str, turn_id: str) -> bool:
        """Remove a turn and its slot; False for an unknown id.

        Raises Busy while it is being answered, InvalidData where the question has no answer.
        """
        with connection(), transaction():
            cls.document.ensure_adopted(principal.tenant_id, session_id)
            RunService.refuse_if_active(session_id, turn_id)
            turn = cls.document.load_turn(principal.tenant_id, session_id, turn_id)
            if turn.entries and not any(entry["role"] == "assistant" for entry in turn.entries):
                raise InvalidData(f"message {turn_id} has no answer; a question goes together with its answer")
            return cls.document.delete_turn(principal.tenant_id, session_id, turn_id)

    @classmethod
    def rewind(cls, principal: Principal, session_id: str, seq: int) -> int:
        """Remove the turn that holds `seq` and all after it; the number of entries. Raises Busy."""
        with connection(), transaction():
            cls.document.lock(principal.tenant_id, session_id)
            RunService.refuse_if_active(session_id)
            return cls.document.rewind(principal.tenant_id, session_id, seq)

    @classmethod
    def give_feedback(
        cls, principal: Principal, session_id: str, turn_id: str, thumbup: bool, feedback: Any = None
    ) -> bool:
        """Vote on a turn's answer; a text stays with a vote down, a vote up removes it.

        False for an unknown id: nothing changes. Raises Busy while the turn is being answered.
        """
        before: list[Any] = []

        def vote(entries: list[dict[str, Any]], slots: list[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
            answer = next(
                (entry for entry in entries if entry.get("id") == turn_id and entry["role"] == "assistant"), None
            )
            if answer is not None:
                before.append(answer.get("thumbup"))
                answer["thumbup"] = thumbup
                if thumbup:
                    answer.pop("feedback", None)
                elif feedback:
                    answer["feedback"] = feedback
            return entries, slots

        with connection(), transaction():
            cls.document.lock(principal.tenant_id, session_id)
            RunService.refuse_if_active(session_id, turn_id)
            cls.document.edit_turn(principal.tenant_id, session_id, turn_id, vote)
            if before:
                cls._voted(session_id, int(thumbup) - int(before[0] is True))
        return bool(before)

    @classmethod
    def _voted(cls, session_id: str, difference: int) -> None:
        """A hook for the table that counts votes."""

    @classmethod
    def get_or_create_for_channel(
        cls, dialog_id: str, channel_id: str, chat_id: str, name: str | None = None
    ) -> DocumentRow:
        """The session of one platform chat, made on first use; the tenant is the dialog's.

        Its id is a digest, so every replica makes the same one: who loses the race reads again. A
        row under the older MD5 id moves over in one transaction. Raises NotFound for an unknown dialog.
        """
        session_id = channel_session_id(dialog_id, channel_id, chat_id)
        legacy_id = legacy_channel_session_id(dialog_id, channel_id, chat_id)
        with connection():
            dialog = Dialog.get_or_none(Dialog.id == dialog_id)
            if dialog is None:
                raise NotFound(f"there is no chat {dialog_id!r}")
            principal = Principal(dialog.tenant_id)
            try:
                with transaction():
                    cls.document.move(principal.tenant_id, legacy_id, session_id)
                    found: DocumentRow | None = cls._light(principal).where(cls.row.id == session_id).first()
                    if found is None:
                        found = cls.document.create({
                            "id": session_id, "tenant_id": principal.tenant_id, "dialog_id": dialog_id,
                            "name": clip(name or f"channel:{channel_id}:{chat_id}"), "name_source": "user",
                        })
                    return found
            except IntegrityError:
                return cls.get_by_id(principal, session_id)

    @classmethod
    def _ids(cls, principal: Principal, dialog_id: str) -> Any:
        return cls.row.select(cls.row.id).where(owned_by(principal, cls.row), cls.row.dialog_id == dialog_id)

    @classmethod
    def _light(cls, principal: Principal) -> Any:
        return cls.row.select(*cls.row.light()).where(owned_by(principal, cls.row))


def clip(name: str) -> str:
    """A session name within its column: trimmed, and cut to 255 characters."""
    return name.strip()[:NAME_LENGTH]

