"""A question answered from a retriever's passages by a model, for programs that hold both: no chat, no store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.events import TextDelta
from services.rag.chat_models import ChatModel
from services.rag.citations import group_sources, parse_last_line
from services.rag.prompts import ModelRequest, PromptTemplate, titled
from services.rag.retrievers import Document, Retriever


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer and the documents it was given. Its last line says which groups of them it used."""

    text: str
    sources: list[Document]

    def cited(self) -> list[list[Document]]:
        """The groups of sources that the last line names, in its order; what names none is left out."""
        groups = group_sources(self.sources)
        return [groups[number - 1] for number in parse_last_line(self.text, len(groups))]


@dataclass(frozen=True, slots=True)
class SourcesChunk:
    sources: list[Document]


@dataclass(frozen=True, slots=True)
class TokenChunk:
    token: str


@dataclass(frozen=True, slots=True)
class DoneChunk:
    answer: Answer


Chunk = SourcesChunk | TokenChunk | DoneChunk
History = Sequence[Mapping[str, Any]]


class QueryEngine:
    """Retrieves with the question alone; the history, as `{role, content}`, is for the model only."""

    def __init__(
        self, *, retriever: Retriever, llm: ChatModel, prompt: PromptTemplate | None = None, limit: int = 6
    ) -> None:
        self.retriever = retriever
        self.llm = llm
        self.prompt = prompt or PromptTemplate()
        self.limit = limit

    def ask(self, question: str, history: History = ()) -> Answer:
        """The whole answer. Raises ModelFailure."""
        sources = self.retriever.retrieve(question, self.limit)
        return Answer("".join(self._tokens(self._request(question, history, sources))), sources)

    def stream(self, question: str, history: History = ()) -> Iterator[Chunk]:
        """One SourcesChunk, a TokenChunk for each delta, one DoneChunk; a failure ends it without the last."""
        sources = self.retriever.retrieve(question, self.limit)
        yield SourcesChunk(sources)
        tokens: list[str] = []
        for token in self._tokens(self._request(question, history, sources)):
            tokens.append(token)
            yield TokenChunk(token)
        yield DoneChunk(Answer("".join(tokens), sources))

    def _request(self, question: str, history: History, sources: list[Document]) -> ModelRequest:
        messages = [
            {"role": "system", "content": self.prompt.system}, *history,
            {"role": "user", "content": self.prompt.render(context_of(sources), question)},
        ]
        return ModelRequest(messages, question, sources, quote=False)

    def _tokens(self, request: ModelRequest) -> Iterator[str]:
        for event in self.llm.stream(request):
            if isinstance(event, TextDelta):
                yield event.text


def context_of(sources: Iterable[Document]) -> str:
    """The sources as the prompt shows them: groups numbered from 1, as `[n]` cites them."""
    groups = group_sources(sources)
    return "\n\n".join(
        f"[{n}]\n" + "\n\n".join(titled(passage) for passage in group) for n, group in enumerate(groups, start=1)
    )
