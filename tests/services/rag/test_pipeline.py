"""A chat's answer: what is asked before the model, what the model gets, what is cited."""

from collections.abc import Iterator
from typing import Any

import pytest

from conf.settings import Settings
from db.models import Dialog
from services.errors import ModelFailure
from services.events import Citations, End, ErrorCode, Event, FinishReason, Question, Sources, TextDelta
from services.knowledge.datasets import DatasetService
from services.knowledge.ingestion import add_text
from services.principal import Principal
from services.rag.chat_models import ExtractiveChatModel, ModelRequest
from services.rag.pipeline import DialogAnswerer
from services.rag.retrievers import Document, doc_aggs, wire_chunk
from tests.factories import DialogFactory
from tests.fakes import ScriptedModels

ACME = Principal("acme")
PASSAGES = [
    Document("c0", "Red is warm.", {"document_id": "d0", "document_name": "red.md"}),
    Document("c1", "Blue is cold.", {"document_id": "d1", "document_name": "blue.md"}),
]
CHUNKS = [wire_chunk(passage) for passage in PASSAGES]


class Shelf:
    def __init__(self, *documents: Document) -> None:
        self.documents = list(documents)
        self.asked: list[tuple[str, int]] = []

    def retrieve(self, question: str, limit: int) -> list[Document]:
        self.asked.append((question, limit))
        return self.documents


class Speaker:
    name = "speaker"

    def __init__(self, *texts: str, finish: FinishReason = FinishReason.STOP) -> None:
        self.texts, self.finish = texts, finish
        self.requests: list[ModelRequest] = []
        self.closed = False

    def stream(self, request: ModelRequest) -> Iterator[Event]:
        self.requests.append(request)
        try:
            yield from map(TextDelta, self.texts)
            yield End(self.finish)
        finally:
            self.closed = True

    @property
    def messages(self) -> list[tuple[str, str]]:
        return [(message["role"], message["content"]) for message in self.requests[0].messages]


def chat(**columns: Any) -> Dialog:
    prompt = {"system": "Know: {knowledge}", "prologue": "Welcome."} | columns.pop("prompt_config", {})
    dialog: Dialog = DialogFactory.build(tenant_id="acme", kb_ids=["kb"], prompt_config=prompt, **columns)
    return dialog


def answer(
    model: Any, dialog: Dialog | None, *passages: Document, text: str = "What is cold?",
    history: list[dict[str, Any]] | None = None, **options: Any,
) -> list[Event]:
    answerer = DialogAnswerer(dialog, ACME, model, ScriptedModels(), Shelf(*passages))
    return list(answerer.answer(Question(text, history or [], options)))


# -- sources and citations ----------------------------------------------------------------------


def test_sources_come_first_citations_before_the_end() -> None:
    speaker = Speaker("Blue is", " cold [ID", ":1] [ID:7].", finish=FinishReason.LENGTH)
    assert answer(speaker, chat(), *PASSAGES) == [
        Sources(CHUNKS, doc_aggs(CHUNKS)),
        TextDelta("Blue is"), TextDelta(" cold [ID"), TextDelta(":1] [ID:7]."),
        Citations([1], [{"doc_name": "blue.md", "doc_id": "d1", "count": 1}]),
        End(FinishReason.LENGTH),
    ]


def test_an_answer_that_cites_nothing_keeps_all_documents() -> None:
    assert answer(Speaker("Hm."), chat(), *PASSAGES)[-2] == Citations([], doc_aggs(CHUNKS))


@pytest.mark.parametrize(("config", "options"), [
    ({"quote": False}, {}), ({}, {"quote": False}), ({}, {"quote": "false"}), ({}, {"quote": 0}), ({}, {"quote": "0"}),
])
def test_without_quoting_there_is_nothing_to_cite(config: dict[str, Any], options: dict[str, Any]) -> None:
    speaker = Speaker("Blue [ID:1].")
    assert answer(speaker, chat(prompt_config=config), *PASSAGES, **options) == [TextDelta("Blue [ID:1]."), End()]
    assert speaker.messages[0][1].startswith("Know: ID: 0")
    assert "[ID:" not in speaker.messages[0][1]
    assert not speaker.requests[0].quote


@pytest.mark.parametrize("options", [{}, {"quote": True}, {"quote": None}, {"quote": "yes"}])
def test_quoting_is_on_unless_it_is_turned_off(options: dict[str, Any]) -> None:
    assert answer(Speaker("Hm."), chat(), *PASSAGES, **options)[0] == Sources(CHUNKS, doc_aggs(CHUNKS))


def test_a_failing_model_gets_no_citations() -> None:
    class Broken(Speaker):
        def stream(self, request: ModelRequest) -> Iterator[Event]:
            yield TextDelta("Bl")
            raise ModelFailure(ErrorCode.MODEL_ERROR, "It broke.")

    events = DialogAnswerer(chat(), ACME, Broken(), ScriptedModels(), Shelf(*PASSAGES)).answer(Question("?"))
    assert [next(events), next(events)] == [Sources(CHUNKS, doc_aggs(CHUNKS)), TextDelta("Bl")]
    with pytest.raises(ModelFailure):
        next(events)


# -- before the model ---------------------------------------------------------------------------


def test_a_greeting_gets_the_prologue_where_the_model_can_only_quote() -> None:
    shelf = Shelf(*PASSAGES)
    events = DialogAnswerer(chat(), ACME, ExtractiveChatModel(), ScriptedModels(), shelf).answer(Question("Hello!"))
    assert list(events) == [TextDelta("Welcome."), End()]
    assert shelf.asked == []


def test_a_greeting_goes_to_a_model_that_can_talk() -> None:
    speaker = Speaker("Hi.")
    answer(speaker, chat(), text="Hello!")
    assert speaker.messages[-1] == ("user", "Hello!")


def test_a_greeting_without_a_prologue_is_a_question() -> None:
    events = answer(ExtractiveChatModel(), chat(prompt_config={"prologue": ""}), text="Hello!")
    assert isinstance(events[-1], End) and events[-1].usage is not None


@pytest.mark.parametrize("empty", ["Nothing.", 404])
def test_the_empty_response_answers_where_nothing_is_found(empty: Any) -> None:
    speaker = Speaker("Hm.")
    events = answer(speaker, chat(prompt_config={"empty_response": empty}))
    assert events == [Sources([], []), TextDelta(str(empty)), End()]
    assert speaker.requests == []


def test_an_empty_empty_response_leaves_it_to_the_model() -> None:
    assert answer(Speaker("Hm."), chat(prompt_config={"empty_response": ""})) == [
        Sources([], []), TextDelta("Hm."), End(),
    ]


def test_a_chat_without_datasets_searches_nothing_and_has_no_sources() -> None:
    dialog = chat(prompt_config={"empty_response": "Nothing."})
    dialog.kb_ids = []
    assert answer(Speaker("Hm."), dialog, *PASSAGES) == [TextDelta("Hm."), End()]


def test_retrieval_sees_the_question_alone_and_takes_the_chats_number() -> None:
    shelf = Shelf(*PASSAGES)
    history = [{"role": "user", "content": "Earlier?"}, {"role": "assistant", "content": "Yes."}]
    list(DialogAnswerer(chat(top_n=3), ACME, Speaker(), ScriptedModels(), shelf).answer(Question("Why?", history)))
    assert shelf.asked == [("Why?", 3)]


@pytest.mark.parametrize("as_text", [True, False])
def test_a_request_may_name_the_documents_to_search(store: Settings, as_text: bool) -> None:
    dataset = DatasetService.create(ACME, "docs").id
    for name in ("Ice", "Snow"):
        add_text(ACME, dataset, f"{name}.md", f"{name} is cold.")
    dialog = chat()
    dialog.kb_ids = [dataset]

    def sources(doc_ids: Any) -> set[str]:
        question = Question("cold", options={"doc_ids": doc_ids})
        first = next(DialogAnswerer(dialog, ACME, Speaker(), ScriptedModels()).answer(question))
        assert isinstance(first, Sources)
        return {chunk["document_id"] for chunk in first.chunks}

    one, other = sources("" if as_text else [])
    assert sources(f" {one}, x" if as_text else [one, "x"]) == {one}
    assert sources(f"{one},{other}" if as_text else [one, other]) == {one, other}


# -- what the model gets ------------------------------------------------------------------------


def test_the_model_gets_the_chats_prompt_the_clients_system_texts_and_the_turns() -> None:
    speaker = Speaker("Hm.")
    history = [
        {"role": "assistant", "content": "Welcome."}, {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Earlier?"}, {"role": "assistant", "content": "Yes."},
    ]
    answer(speaker, chat(), *PASSAGES, history=history)
    (role, system), *turns = speaker.messages
    assert role == "system"
    assert system.startswith("Know: ID: 0\nTitle: red.md\nRed is warm.") and system.endswith("\n\nBe brief.")
    assert turns == [("user", "Earlier?"), ("assistant", "Yes."), ("user", "What is cold?")]
    assert (speaker.requests[0].question, speaker.requests[0].passages) == ("What is cold?", PASSAGES)


def test_without_a_chat_the_model_gets_the_clients_messages_only() -> None:
    speaker = Speaker("Hm.")
    assert answer(speaker, None, *PASSAGES, temperature=0.5) == [TextDelta("Hm."), End()]
    assert speaker.messages == [("user", "What is cold?")]
    assert speaker.requests[0].parameters == {"temperature": 0.5}


def test_the_requests_sampling_parameters_lie_over_the_chats() -> None:
    speaker = Speaker("Hm.")
    setting = {"temperature": 0.1, "top_p": 0.3, "max_tokens": None, "parameter": "Precise"}
    answer(speaker, chat(llm_setting=setting), temperature=0.9, presence_penalty=1, top_k=5)
    assert speaker.requests[0].parameters == {"temperature": 0.9, "top_p": 0.3, "presence_penalty": 1}


def test_a_chats_setting_that_is_no_number_is_not_sent() -> None:
    speaker = Speaker("Hm.")
    answer(speaker, chat(llm_setting={"temperature": "hot", "top_p": True, "max_tokens": 5}))
    assert speaker.requests[0].parameters == {"max_tokens": 5}


def test_a_missing_parameter_that_the_prompt_needs_is_named() -> None:
    dialog = chat(prompt_config={"parameters": [{"key": "tone", "optional": False}]})
    with pytest.raises(ModelFailure, match="`tone`") as caught:
        answer(Speaker(), dialog, *PASSAGES)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_prompt_parameters_come_from_the_request() -> None:
    speaker = Speaker("Hm.")
    config = {"system": "Be {tone}.", "parameters": [{"key": "tone", "optional": False}]}
    answer(speaker, chat(prompt_config=config), tone="kind")
    assert speaker.messages[0] == ("system", "Be kind.")


def test_leaving_the_answer_closes_the_models_stream() -> None:
    speaker = Speaker("a", "b")
    events = DialogAnswerer(chat(), ACME, speaker, ScriptedModels(), Shelf(*PASSAGES)).answer(Question("?"))
    next(events), next(events)
    events.close()  # type: ignore[attr-defined]
    assert speaker.closed
