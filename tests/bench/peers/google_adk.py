"""google-adk: a session row and a row an event; an event carries its metadata."""

from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, Part

from tests.bench.peers.peer import WRITERS, AsyncPeer, Turn

APP = "bench"


class Adk(AsyncPeer):
    about = "append_event twice, on a session that stays in memory"
    refusals = (StaleSessionError,)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        address = url.replace("postgresql", "postgresql+asyncpg", 1)
        self.service = DatabaseSessionService(address, pool_size=WRITERS)
        self.run(self.service.prepare_tables())

    def close(self) -> None:
        self.run(self.service.close())

    def session(self, owner: str) -> Session:
        return self.run(self.service.create_session(app_name=APP, user_id=owner))

    def join(self, session: Session) -> Session:
        return self.run(self._get(session, GetSessionConfig(num_recent_events=0)))

    async def appending(self, session: Session, turn: Turn) -> None:
        asked = Content(role="user", parts=[Part(text=turn.question)])
        said = Content(role="model", parts=[Part(text=turn.answer)])
        metadata = {"chunks": turn.chunks}
        await self.service.append_event(session, Event(author="user", content=asked, invocation_id=turn.id))
        await self.service.append_event(
            session, Event(author="model", content=said, invocation_id=turn.id, custom_metadata=metadata)
        )

    async def _get(self, session: Session, config: GetSessionConfig | None = None) -> Any:
        return await self.service.get_session(
            app_name=APP, user_id=session.user_id, session_id=session.id, config=config
        )

    def read_all(self, session: Session) -> Any:
        return self.run(self._get(session))

    def read_last(self, session: Session, count: int) -> Any:
        return self.run(self._get(session, GetSessionConfig(num_recent_events=count)))

    def list_30(self, owner: str) -> Any:
        return self.run(self.service.list_sessions(app_name=APP, user_id=owner))

    def texts(self, session: Session) -> set[str]:
        return {event.content.parts[0].text for event in self.read_all(session).events}


class AdkRunner(Adk):
    about = "the same as its Runner does by default: get_session with every event first"
    rereads = True

    async def appending(self, session: Session, turn: Turn) -> None:
        await super().appending(await self._get(session), turn)

    def fill(self, session: Session, turns: Any) -> None:
        held = self.join(session)
        for turn in turns:
            self.run(super().appending(held, turn))
