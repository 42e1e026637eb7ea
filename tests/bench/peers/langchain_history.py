"""langchain-postgres: a row a message and nothing else; passages go with an answer's additional_kwargs."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_postgres import PostgresChatMessageHistory
from psycopg_pool import ConnectionPool

from tests.bench.peers.peer import WRITERS, Peer, Turn

TABLE = "chat_history"


def messages_of(turn: Turn) -> list[BaseMessage]:
    return [
        HumanMessage(turn.question, id=turn.id),
        AIMessage(turn.answer, additional_kwargs={"chunks": turn.chunks}),
    ]


class Langchain(Peer):
    about = "add_messages once, question and answer together, over a connection of a pool"
    lists = False
    batch = 250

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pool = ConnectionPool(url, min_size=1, max_size=WRITERS, open=True)
        with self.pool.connection() as connection:
            PostgresChatMessageHistory.create_tables(connection, TABLE)

    def close(self) -> None:
        self.pool.close()

    def session(self, owner: str) -> str:
        return str(uuid4())

    def append(self, session: str, turn: Turn) -> None:
        self.fill(session, [turn])

    def fill(self, session: str, turns: Sequence[Turn]) -> None:
        with self.pool.connection() as connection:
            history = PostgresChatMessageHistory(TABLE, session, sync_connection=connection)
            history.add_messages([message for turn in turns for message in messages_of(turn)])

    def read_all(self, session: str) -> Any:
        with self.pool.connection() as connection:
            return PostgresChatMessageHistory(TABLE, session, sync_connection=connection).messages

    def read_last(self, session: str, count: int) -> Any:
        return self.read_all(session)[-count:]

    def texts(self, session: str) -> set[str]:
        return {message.content for message in self.read_all(session)}
