"""A chat's answer to a question: small talk, retrieval, the empty answer, the model, in this order.

Retrieval sees the question, the model the history too; citations are read from the finished text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from db.models import Dialog
from services.errors import InvalidArgument, InvalidData, ModelFailure
from services.events import Citations, End, ErrorCode, Event, Question, Sources, TextDelta
from services.knowledge.metadata import read_filter
from services.messages import configured, for_model, text_of
from services.principal import Principal
from services.rag.asking import standalone_question, stream_trimmed
from services.rag.chat_models import ChatModel, ExtractiveChatModel, ModelRequest
from services.rag.citations import narrow, parse_ids
from services.rag.extractive import is_small_talk
from services.rag.prompts import SAMPLING, render_system
from services.rag.retrieval import Models, Wanted, retriever
from services.rag.retrievers import Document, Retriever, doc_aggs, wire_chunk


class DialogAnswerer:
    """Answers for one chat, or without one (`dialog` None): then the model has the client's messages only.

    `models` finds the models that its datasets are searched with; `retriever` stands in for that search.
    """

    def __init__(
        self, dialog: Dialog | None, principal: Principal, model: ChatModel, models: Models,
        retriever: Retriever | None = None,
    ) -> None:
        self.dialog = dialog
        self.principal = principal
        self.model = model
        self._models = models
        self._retriever = retriever
        self._prompt: dict[str, Any] = (dialog.prompt_config or {}) if dialog else {}
        self._datasets: list[str] = (dialog.kb_ids or []) if dialog else []

    def answer(self, question: Question) -> Iterator[Event]:
        """Sources (where the chat has datasets and quotes), the model's events, citations, the end."""
        said = self._small_talk(question)
        if said:
            yield TextDelta(said)
            yield End()
            return
        passages = self._passages(question)
        quotes = self._quotes(question.options)
        chunks = [wire_chunk(passage) for passage in passages]
        if self._datasets and quotes:
            yield Sources(chunks, doc_aggs(chunks))
        empty = configured(self._prompt.get("empty_response"))
        if self._datasets and not passages and empty:
            yield TextDelta(empty)
            yield End()
            return
        events = stream_trimmed(self.model, self._request(question, passages, quotes))
        yield from _with_citations(events, chunks if quotes else [])

    def _small_talk(self, question: Question) -> str:
        """The prologue, where a greeting meets a model that can only quote."""
        if isinstance(self.model, ExtractiveChatModel) and is_small_talk(question.text):
            return configured(self._prompt.get("prologue"))
        return ""

    def _passages(self, question: Question) -> list[Document]:
        if self.dialog is None or not self._datasets:
            return []
        try:
            wanted = self._wanted(self.dialog, question.options)
            found = self._retriever or retriever(self.principal, wanted, self._models)
        except (InvalidArgument, InvalidData) as wrong:
            raise ModelFailure(ErrorCode.INVALID_REQUEST, wrong.message) from wrong
        asked = question.text
        if self._prompt.get("refine_multiturn") and not isinstance(self.model, ExtractiveChatModel):
            asked = standalone_question(self.model, question)
        return found.retrieve(asked, self.dialog.top_n if self.dialog.top_n > 0 else DEFAULT_TOP_N)

    def _wanted(self, dialog: Dialog, options: Mapping[str, Any]) -> Wanted:
        filters = map(read_filter, (dialog.meta_data_filter, options.get("metadata_condition")))
        reranks = self._models.find_rerank(dialog.rerank_id) is not None  # a chat brought along may name another's
        return Wanted(
            self._datasets, dialog.top_k, dialog.similarity_threshold, dialog.vector_similarity_weight,
            dialog.rerank_id if reranks else "", _ids(options.get("doc_ids")), [each for each in filters if each],
        )

    def _quotes(self, options: Mapping[str, Any]) -> bool:
        off = self.dialog is not None and self.dialog.do_refer == "0"
        return not off and self._prompt.get("quote") is not False and not _is_off(options.get("quote"))

    def _request(self, question: Question, passages: list[Document], quotes: bool) -> ModelRequest:
        try:
            system = self._system(question, passages, quotes)
            parameters = self._parameters(question.options)
        except InvalidArgument as wrong:
            raise ModelFailure(ErrorCode.INVALID_REQUEST, wrong.message) from wrong
        asked = {"role": "user", "content": question.text}
        messages = [*system, *for_model([*question.history, asked])]
        return ModelRequest(messages, question.text, passages, parameters, quotes)

    def _system(self, question: Question, passages: list[Document], quotes: bool) -> list[dict[str, Any]]:
        """One system message of the chat's prompt and the client's own system texts, or none."""
        texts = [text_of(entry.get("content")) for entry in question.history if entry["role"] == "system"]
        if self.dialog is not None:
            texts.insert(0, render_system(self._prompt, passages, question.options, quotes))
        content = "\n\n".join(text for text in texts if text.strip())
        return [{"role": "system", "content": content}] if content else []

    def _parameters(self, options: Mapping[str, Any]) -> dict[str, float]:
        """The chat's sampling parameters with the request's over them; a chat may hold what is no number."""
        setting: Mapping[str, Any] = (self.dialog.llm_setting or {}) if self.dialog else {}
        return {key: value for key, value in {**setting, **options}.items() if key in SAMPLING and _is_number(value)}


DEFAULT_TOP_N = 6


def _with_citations(events: Iterator[Event], chunks: list[dict[str, Any]]) -> Iterator[Event]:
    """The model's events; before its end, what the whole text cites of the chunks."""
    end = End()
    parts: list[str] = []
    for event in events:
        if isinstance(event, End):
            end = event
            break
        if isinstance(event, TextDelta):
            parts.append(event.text)
        yield event
    if chunks:
        cited = parse_ids("".join(parts), len(chunks))
        yield Citations(cited, narrow(doc_aggs(chunks), chunks, cited))
    yield end


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ids(value: Any) -> list[str] | None:
    """Document ids as a list or a text with commas; None where none are named."""
    ids = value.split(",") if isinstance(value, str) else value or []
    return [id.strip() for id in ids if id.strip()] or None


def _is_off(value: Any) -> bool:
    return value == 0 or (isinstance(value, str) and value.strip().lower() in ("false", "0"))
