"""agno: a session row and a row a run; a run carries its messages and its references."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from agno.db.base import SessionType
from agno.db.postgres import PostgresDb
from agno.models.message import Message, MessageReferences
from agno.run.agent import RunInput, RunOutput
from agno.run.base import RunStatus
from agno.session.agent import AgentSession
from sqlalchemy import create_engine

from tests.bench.peers.peer import LISTED, WRITERS, Peer, Turn

AGENT = "bench"


def run_of(session: AgentSession, turn: Turn) -> RunOutput:
    return RunOutput(
        run_id=turn.id, agent_id=AGENT, session_id=session.session_id, user_id=session.user_id,
        input=RunInput(turn.question), content=turn.answer, status=RunStatus.completed,
        messages=[Message(role="user", content=turn.question), Message(role="assistant", content=turn.answer)],
        references=[MessageReferences(query=turn.question, references=turn.chunks)],
    )


class Agno(Peer):
    about = "upsert_session and upsert_run alone"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        engine = create_engine(url.replace("postgresql", "postgresql+psycopg", 1), pool_size=WRITERS)
        self.db = PostgresDb(db_engine=engine)

    def close(self) -> None:
        self.db.db_engine.dispose()

    def session(self, owner: str) -> AgentSession:
        session = AgentSession(str(uuid4()), agent_id=AGENT, user_id=owner, session_data={}, created_at=1)
        self.db.upsert_session(session)
        return session

    def append(self, session: AgentSession, turn: Turn) -> None:
        self.db.upsert_session(session)
        self.db.upsert_run(run_of(session, turn), session.session_id, session.user_id)

    def read_all(self, session: AgentSession) -> Any:
        return self.db.get_session(session.session_id, SessionType.AGENT, session.user_id)

    def read_last(self, session: AgentSession, count: int) -> Any:
        return self.db.get_session(
            session.session_id, SessionType.AGENT, session.user_id, runs_limit=count // 2
        )

    def list_30(self, owner: str) -> Any:
        return self.db.get_sessions(SessionType.AGENT, owner, AGENT, limit=LISTED, page=1, include_runs=False)

    def texts(self, session: AgentSession) -> set[str]:
        return {message.content for run in self.read_all(session).runs or [] for message in run.messages}


class AgnoAgent(Agno):
    """The run's place in the session comes from the session that was read."""

    about = "the same as its Agent does by default: get_session with every run first (known ones from its cache)"
    rereads = True

    def append(self, session: AgentSession, turn: Turn) -> None:
        read = self.read_all(session)
        run = run_of(session, turn)
        read.upsert_run(run)
        self.db.upsert_session(read)
        self.db.upsert_run(run, session.session_id, session.user_id, len(read.runs) - 1)

    def fill(self, session: AgentSession, turns: Sequence[Turn]) -> None:
        for turn in turns:
            super().append(session, turn)
