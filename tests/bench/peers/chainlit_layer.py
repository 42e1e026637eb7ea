"""chainlit: a thread row and a row a step; a step carries its metadata. The tables are its documentation's."""

import os
import tempfile
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, text

from tests.bench.peers.peer import LISTED, AsyncPeer, Turn

os.environ.setdefault("CHAINLIT_APP_ROOT", tempfile.mkdtemp())

from chainlit.context import ChainlitContext, context_var, init_http_context
from chainlit.data.sql_alchemy import SQLAlchemyDataLayer
from chainlit.types import Pagination, ThreadFilter
from chainlit.user import User
from chainlit.utils import utc_now

TABLES = """
CREATE TABLE users ("id" uuid PRIMARY KEY, "identifier" text NOT NULL UNIQUE, "metadata" jsonb NOT NULL,
    "createdAt" text);
CREATE TABLE threads ("id" uuid PRIMARY KEY, "createdAt" text, "name" text,
    "userId" uuid REFERENCES users ("id") ON DELETE CASCADE, "userIdentifier" text, "tags" text[],
    "metadata" jsonb);
CREATE TABLE steps ("id" uuid PRIMARY KEY, "name" text NOT NULL, "type" text NOT NULL,
    "threadId" uuid NOT NULL REFERENCES threads ("id") ON DELETE CASCADE, "parentId" uuid,
    "streaming" boolean NOT NULL, "waitForAnswer" boolean, "isError" boolean, "metadata" jsonb, "tags" text[],
    "input" text, "output" text, "createdAt" text, "command" text, "modes" jsonb, "start" text, "end" text,
    "generation" jsonb, "showInput" text, "language" text, "indent" int, "defaultOpen" boolean);
CREATE TABLE elements ("id" uuid PRIMARY KEY, "threadId" uuid REFERENCES threads ("id") ON DELETE CASCADE,
    "type" text, "url" text, "chainlitKey" text, "name" text NOT NULL, "display" text, "objectKey" text,
    "size" text, "page" int, "language" text, "forId" uuid, "mime" text, "props" jsonb);
CREATE TABLE feedbacks ("id" uuid PRIMARY KEY, "forId" uuid NOT NULL, "threadId" uuid NOT NULL
    REFERENCES threads ("id") ON DELETE CASCADE, "value" int NOT NULL, "comment" text);
"""


class Chainlit(AsyncPeer):
    about = "create_step of the question, update_step of the streamed answer"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        engine = create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
        with engine.begin() as connection:
            connection.execute(text(TABLES))
        engine.dispose()
        self.layer = SQLAlchemyDataLayer(url.replace("postgresql", "postgresql+asyncpg", 1))
        context_var.set(self.run(self._context()))
        self.users: dict[str, str] = {}

    async def _context(self) -> ChainlitContext:
        return init_http_context()

    def close(self) -> None:
        self.run(self.layer.close())

    def session(self, owner: str) -> str:
        thread = str(uuid4())
        self.run(self.layer.update_thread(thread, name="bench", user_id=self._user(owner)))
        return thread

    def _user(self, owner: str) -> str:
        if owner not in self.users:
            self.users[owner] = self.run(self.layer.create_user(User(identifier=owner))).id
        return self.users[owner]

    async def appending(self, session: str, turn: Turn) -> None:
        await self.layer.create_step(step(session, "user_message", turn.question, {}))
        await self.layer.update_step(step(session, "assistant_message", turn.answer, {"chunks": turn.chunks}))

    def read_all(self, session: str) -> Any:
        return self.run(self.layer.get_thread(session))

    def read_last(self, session: str, count: int) -> Any:
        return self.read_all(session)["steps"][-count:]

    def list_30(self, owner: str) -> Any:
        return self.run(self.layer.list_threads(Pagination(first=LISTED), ThreadFilter(userId=self._user(owner))))

    def texts(self, session: str) -> set[str]:
        return {each["output"] for each in self.read_all(session)["steps"]}


def step(thread: str, kind: str, content: str, metadata: dict[str, Any]) -> Any:
    moment = utc_now()
    return {
        "id": str(uuid4()), "threadId": thread, "name": "bench", "type": kind, "output": content,
        "createdAt": moment, "start": moment, "end": moment, "streaming": False, "isError": False,
        "waitForAnswer": False, "metadata": metadata,
    }
