"""openai-agents: a session row and a row an item; passages go with an answer's annotations."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.peers.peer import WRITERS, AsyncPeer, Turn


def asked(turn: Turn) -> Any:
    return {"role": "user", "content": turn.question}


def said(turn: Turn) -> Any:
    content = {"type": "output_text", "text": turn.answer, "annotations": turn.chunks}
    return {"type": "message", "role": "assistant", "id": turn.id, "status": "completed", "content": [content]}


class OpenaiAgents(AsyncPeer):
    about = "add_items twice: the question before the model is asked, the answer after, as its Runner does"
    lists = False
    batch = 250

    def __init__(self, url: str) -> None:
        super().__init__(url)
        address = url.replace("postgresql", "postgresql+asyncpg", 1)
        self.engine = create_async_engine(address, pool_size=WRITERS)
        self.run(SQLAlchemySession("first", engine=self.engine, create_tables=True).get_items())

    def close(self) -> None:
        self.run(self.engine.dispose())

    def session(self, owner: str) -> SQLAlchemySession:
        return SQLAlchemySession(f"{owner}-{uuid4()}", engine=self.engine)

    def join(self, session: SQLAlchemySession) -> SQLAlchemySession:
        return SQLAlchemySession(session.session_id, engine=self.engine)

    async def appending(self, session: SQLAlchemySession, turn: Turn) -> None:
        await session.add_items([asked(turn)])
        await session.add_items([said(turn)])

    def fill(self, session: SQLAlchemySession, turns: Sequence[Turn]) -> None:
        self.run(session.add_items([item for turn in turns for item in (asked(turn), said(turn))]))

    def read_all(self, session: SQLAlchemySession) -> Any:
        return self.run(session.get_items())

    def read_last(self, session: SQLAlchemySession, count: int) -> Any:
        return self.run(session.get_items(limit=count))

    def texts(self, session: SQLAlchemySession) -> set[str]:
        contents = (item["content"] for item in self.read_all(session))
        return {content if isinstance(content, str) else content[0]["text"] for content in contents}
