"""The query engine: retrieve with the question, answer with the history, in three kinds of chunks."""

from collections.abc import Iterator

import pytest

from services.errors import ModelFailure
from services.events import End, ErrorCode, Event, ReasoningDelta, TextDelta
from services.rag.engine import Answer, DoneChunk, QueryEngine, SourcesChunk, TokenChunk
from services.rag.prompts import ModelRequest, PromptTemplate
from services.rag.retrievers import Document

PAGE = {"url": "https://docs.example/a"}
SOURCES = [Document("2", "second", PAGE, 2), Document("x", "alone"), Document("1", "first", PAGE, 1)]


class Shelf:
    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents
        self.asked: list[tuple[str, int]] = []

    def retrieve(self, question: str, limit: int) -> list[Document]:
        self.asked.append((question, limit))
        return self.documents


class Speaker:
    name = "speaker"

    def __init__(self, breaks: bool = False) -> None:
        self.breaks = breaks
        self.request = ModelRequest([], "")
        self.closed = False

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        self.request = request
        try:
            yield ReasoningDelta("hm")
            yield TextDelta("So ")
            if self.breaks:
                raise ModelFailure(ErrorCode.MODEL_ERROR, "It broke.")
            yield TextDelta("it is.\n[1]")
            yield End()
        finally:
            self.closed = True


def test_asks_for_a_whole_answer_with_its_sources() -> None:
    assert QueryEngine(retriever=Shelf(SOURCES), llm=Speaker()).ask("Why?") == Answer("So it is.\n[1]", SOURCES)


def test_streams_sources_then_tokens_then_the_answer() -> None:
    assert list(QueryEngine(retriever=Shelf(SOURCES), llm=Speaker()).stream("Why?")) == [
        SourcesChunk(SOURCES), TokenChunk("So "), TokenChunk("it is.\n[1]"),
        DoneChunk(Answer("So it is.\n[1]", SOURCES)),
    ]


def test_says_so_when_nothing_was_found() -> None:
    chunks = list(QueryEngine(retriever=Shelf([]), llm=Speaker()).stream("Why?"))
    assert chunks[0] == SourcesChunk([])
    assert isinstance(chunks[-1], DoneChunk)


def test_a_failure_ends_the_stream_without_an_answer() -> None:
    stream = QueryEngine(retriever=Shelf(SOURCES), llm=Speaker(breaks=True)).stream("Why?")
    assert [next(stream), next(stream)] == [SourcesChunk(SOURCES), TokenChunk("So ")]
    with pytest.raises(ModelFailure):
        next(stream)


def test_the_history_stands_between_rules_and_question_and_is_not_searched() -> None:
    shelf, speaker = Shelf(SOURCES), Speaker()
    history = [{"role": "user", "content": "Earlier?"}, {"role": "assistant", "content": "Yes."}]
    prompt = PromptTemplate("Rules", "{context} | {question}")
    QueryEngine(retriever=shelf, llm=speaker, prompt=prompt, limit=3).ask("Why?", history)
    assert shelf.asked == [("Why?", 3)]
    system, *between, asked = speaker.request.messages
    assert (system, between) == ({"role": "system", "content": "Rules"}, history)
    assert asked == {"role": "user", "content": "[1]\nfirst\n\nsecond\n\n[2]\nalone | Why?"}


def test_leaving_the_stream_closes_the_models() -> None:
    speaker = Speaker()
    stream = QueryEngine(retriever=Shelf(SOURCES), llm=speaker).stream("Why?")
    next(stream), next(stream)
    del stream
    assert speaker.closed


@pytest.mark.parametrize(("last_line", "texts"), [
    ("[1]", [["first", "second"]]), ("[2][1][2][9][0]", [["alone"], ["first", "second"]]),
    ("So [1] it is.", []), ("", []),
])
def test_an_answer_knows_what_its_last_line_cites(last_line: str, texts: list[list[str]]) -> None:
    cited = Answer(f"So it is.\n{last_line}", SOURCES).cited()
    assert [[document.text for document in group] for group in cited] == texts
