"""Chatkeep: the document alone, and a whole turn with its run and index.

Each message takes a connection from the pool, as in a request. The document alone lives in the twin table, so that
the two share no file on disk.
"""

import functools
import threading
from typing import Any, ClassVar

from conf.settings import load_settings
from db.database import connection, database, open_database
from db.document import API4_CONVERSATIONS, CONVERSATIONS, PagedDocument
from db.jsontext import loads
from db.migrate import migrate
from services.api4_conversation_service import API4ConversationService
from services.conversation_service import ConversationService
from services.events import End
from services.principal import Principal
from services.runs.rows import Occupied, RunService
from services.runs.values import Outcome, Right, Start, this_process
from services.structure_answer import Turn as AnsweredTurn
from tests.bench.document import TENANT, append_answer, append_question
from tests.bench.peers.peer import LISTED, WRITERS, Peer, Turn

OWNER = Principal(TENANT)
LEASE = 60.0


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
            if not append_question(self.document, session, question):
                self.document.append(TENANT, session, [loads(question)])
        with connection():
            if not append_answer(self.document, session, answer, slot):
                self.document.append(TENANT, session, [loads(answer)], [loads(slot)])

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
