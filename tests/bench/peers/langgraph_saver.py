"""langgraph: a graph over MessagesState with the PostgreSQL checkpointer; each step stores all messages anew."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from tests.bench.peers.langchain_history import messages_of
from tests.bench.peers.peer import WRITERS, Peer, Turn

CONNECTION = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


class Langgraph(Peer):
    about = "invoke of a graph with one node that answers, its thread kept by PostgresSaver"
    rereads = True
    lists = False
    batch = 0

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pool = ConnectionPool(url, min_size=1, max_size=WRITERS, kwargs=CONNECTION, open=True)
        saver = PostgresSaver(self.pool)
        saver.setup()
        self.answers: dict[str, BaseMessage] = {}
        graph = StateGraph(MessagesState)
        graph.add_node("answer", self._answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self.graph = graph.compile(checkpointer=saver)

    def _answer(self, state: MessagesState) -> dict[str, Any]:
        return {"messages": [self.answers.pop(str(state["messages"][-1].id))]}

    def close(self) -> None:
        self.pool.close()

    def session(self, owner: str) -> Any:
        return {"configurable": {"thread_id": str(uuid4())}}

    def append(self, session: Any, turn: Turn) -> None:
        question, answer = messages_of(turn)
        self.answers[turn.id] = answer
        self.graph.invoke({"messages": [question]}, session)

    def fill(self, session: Any, turns: Sequence[Turn]) -> None:
        """Many turns as one change of the state: else the history alone would take hours and gigabytes."""
        messages = [message for turn in turns for message in messages_of(turn)]
        self.graph.update_state(session, {"messages": messages}, as_node="answer")

    def read_all(self, session: Any) -> Any:
        return self.graph.get_state(session).values["messages"]

    def read_last(self, session: Any, count: int) -> Any:
        return self.read_all(session)[-count:]

    def texts(self, session: Any) -> set[str]:
        return {message.content for message in self.read_all(session)}
