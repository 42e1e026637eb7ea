"""Chatkeep: the document alone, and a whole turn with its run and index.

Each message takes a connection from the pool, as in a request. The document alone lives in the twin table, so that
the two share no file on disk.
"""

import functools
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from conf.settings import load_settings
from db.database import connection, database, fetch, open_database, transaction
from db.document import API4_CONVERSATIONS, CONVERSATIONS, PagedDocument
from db.document.statements import SEAL_FIRST, append_statement, seal_statement
from db.jsontext import loads
from db.migrate import migrate
from db.models import date_of, now_ms
from services.api4_conversation_service import API4ConversationService
from services.conversation_service import ConversationService
from services.events import End
from services.principal import Principal
from services.runs.rows import Occupied, RunService
from services.runs.values import Outcome, Right, Start, this_process
from services.structure_answer import Turn as AnsweredTurn
from tests.bench.peers.peer import LISTED, WRITERS, Peer, Turn

TENANT = "bench"
OWNER = Principal(TENANT)
NO_LIMIT = 2**62
LEASE = 60.0


def bytes_of(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


@functools.cache
def open_ours(url: str) -> None:
    """The one database of all that goes through the project's own pool."""
    settings = load_settings(database={"url": url, "pool_size": WRITERS + 4})
    migrate(settings)
    open_database(settings)


class Document(Peer):
    about = "db/document's own statements, without index and run"
    document: ClassVar[PagedDocument] = API4_CONVERSATIONS
    service: ClassVar[type[ConversationService]] = API4ConversationService

    def __init__(self, url: str) -> None:
        super().__init__(url)
        open_ours(url)

    def close(self) -> None:
        database.obj.close_idle()

    def session(self, owner: str) -> str:
        with connection():
            return str(self.document.create({"tenant_id": TENANT, "dialog_id": owner, "name": "bench"}).id)

    def append(self, session: str, turn: Turn) -> None:
        """Another writer's open turn may leave no room: then the document's own append knows what to do."""
        question, answer, slot = turn.texts
        with connection():
            asked = append_statement("postgres", 1, 0)
            if not self._write(asked, session, [question], database.obj.limits.page_bytes):
                self.document.append(TENANT, session, [loads(question)])
        with connection():
            self._end(session, answer, slot)

    def _end(self, session: str, answer: str, slot: str) -> None:
        """The answer with its slot; where that fills the page, into a page row with it, the row held."""
        texts = [answer, slot]
        length = bytes_of(texts)
        if self._write(append_statement("postgres", 1, 1), session, texts, database.obj.limits.page_bytes - length):
            return
        sealing = append_statement("postgres", 1, 1, sealing=True)
        whole = f"WITH {SEAL_FIRST % seal_statement('postgres', 1, 1)} w AS ({sealing}) SELECT * FROM w"
        with transaction():
            self.document.lock(TENANT, session)
            if not self._write(whole, session, texts, NO_LIMIT, [length, session]):
                self.document.append(TENANT, session, [loads(answer)], [loads(slot)])

    def _write(
        self, statement: str, session: str, texts: Sequence[str], limit: int, before: Sequence[object] = ()
    ) -> list[tuple[Any, ...]]:
        length, moment = bytes_of(texts), now_ms()
        return fetch(self.document._sql(statement), [
            *texts, *(before or [length]), length, 1, 1, moment, date_of(moment), session, TENANT, limit,
        ])

    def read_all(self, session: str) -> tuple[bytes, bytes]:
        with connection():
            text = self.document.load_text(TENANT, session)
        return text.array(0), text.array(1)

    def read_parsed(self, session: str) -> Any:
        with connection():
            return self.document.load(TENANT, session)

    def read_last(self, session: str, count: int) -> Any:
        row = self.service.get_by_id(OWNER, session)
        return self.service.history(OWNER, session, row.next_seq, count)

    def list_30(self, owner: str) -> Any:
        return self.service.get_list(OWNER, owner, page_size=LISTED)

    def texts(self, session: str) -> set[str]:
        return {entry["content"] for entry in self.read_parsed(session).entries}


class Run(Document):
    about = "RunService.begin and RunService.end: question, answer, slot, index and run"
    document = CONVERSATIONS
    service = ConversationService

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.owner = this_process()
        self.freed = threading.Condition()

    def append(self, session: str, turn: Turn) -> None:
        question = {"role": "user", "content": turn.question, "id": turn.id, "created_at": turn.created_at}
        start = Start(TENANT, session, question)
        self._enter(start)
        answered = AnsweredTurn([turn.answer], chunks=turn.chunks)
        RunService.end(start, answered, End(), Outcome.SUCCESS, Right.of_owner(self.owner))
        with self.freed:
            self.freed.notify_all()

    def _enter(self, start: Start) -> None:
        """Begin, or wait in the session's queue: what services.completions does."""
        try:
            return RunService.begin(start, self.owner, LEASE)
        except Occupied:
            RunService.enqueue(start, self.owner, LEASE, WRITERS)
        while True:
            try:
                return RunService.promote(start)
            except Occupied:
                with self.freed:
                    self.freed.wait(0.1)
