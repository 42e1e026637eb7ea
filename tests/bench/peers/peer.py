"""What an adapter does, whatever store is behind it."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from db.jsontext import loads
from tests.bench.document import turn

Result = TypeVar("Result")
Job = tuple[Any, "Sequence[Turn]"]

WRITERS = 16
LAST = 20  # entries that a "read the last" reads, ten turns
LISTED = 30  # sessions that a list shows


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: as values for the peers, and as the three JSON texts that db/document stores."""

    id: str
    question: str
    answer: str
    chunks: list[dict[str, Any]]
    created_at: float
    texts: tuple[str, str, str]


def new_turn() -> Turn:
    texts = turn()
    question, answer, slot = (loads(text) for text in texts)
    return Turn(question["id"], question["content"], answer["content"], slot["chunks"], question["created_at"], texts)


class Peer:
    """A store under measurement. A session is whatever the store's own calls want to be given."""

    about: ClassVar[str]
    rereads: ClassVar[bool] = False  # whether storing a turn rewrites or rereads the history
    lists: ClassVar[bool] = True  # whether it has a call that lists sessions
    batch: ClassVar[int] = 1  # turns that one call of `fill` takes; 0: all of them
    refusals: ClassVar[tuple[type[Exception], ...]] = ()  # a turn that isn't stored, and the caller knows

    def __init__(self, url: str) -> None:
        self.url = url

    def close(self) -> None:
        """Give the connections back."""

    def session(self, owner: str) -> Any:
        """A new session of this owner."""
        raise NotImplementedError

    def join(self, session: Any) -> Any:
        """The same session in another writer's hands."""
        return session

    def append(self, session: Any, turn: Turn) -> None:
        raise NotImplementedError

    def fill(self, session: Any, turns: Sequence[Turn]) -> None:
        """Store many turns; other than by appends where the store has a call for it."""
        for each in turns:
            self.append(session, each)

    def read_all(self, session: Any) -> Any:
        """The whole session as the store hands it to whoever sends it on."""
        raise NotImplementedError

    def read_parsed(self, session: Any) -> Any:
        """The whole session as Python values."""
        return self.read_all(session)

    def read_last(self, session: Any, count: int) -> Any:
        raise NotImplementedError

    def list_30(self, owner: str) -> Any:
        raise NotImplementedError

    def texts(self, session: Any) -> set[str]:
        """What was said in a session: the contents of its entries."""
        raise NotImplementedError

    def write(self, jobs: Sequence[Job]) -> set[str]:
        """All jobs at once, a thread each; the turns that were refused."""
        begin = threading.Barrier(len(jobs))

        def work(job: Job) -> set[str]:
            session, turns = job
            begin.wait(60)
            return {each.id for each in turns if not self._stores(session, each)}

        with ThreadPoolExecutor(len(jobs)) as pool:
            return set().union(*pool.map(work, jobs))

    def _stores(self, session: Any, turn: Turn) -> bool:
        try:
            self.append(session, turn)
        except self.refusals:
            return False
        return True


class AsyncPeer(Peer):
    """A store whose calls are coroutines: all of them run on one event loop."""

    loop: ClassVar[asyncio.AbstractEventLoop] = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    async def appending(self, session: Any, turn: Turn) -> None:
        raise NotImplementedError

    def append(self, session: Any, turn: Turn) -> None:
        self.run(self.appending(session, turn))

    def write(self, jobs: Sequence[Job]) -> set[str]:
        """All jobs at once, a task each."""
        async def work(session: Any, turns: Sequence[Turn]) -> set[str]:
            return {each.id for each in turns if not await self._storing(session, each)}

        async def together() -> set[str]:
            return set().union(*await asyncio.gather(*(work(*job) for job in jobs)))

        return self.run(together())

    async def _storing(self, session: Any, turn: Turn) -> bool:
        try:
            await self.appending(session, turn)
        except self.refusals:
            return False
        return True
