"""Passages from a RAGFlow server that goes on holding the documents: its retrieval route as a Retriever."""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from conf.settings import TextModelSettings
from db.legacy import format_chunk
from services.events import ErrorCode
from services.rag.model_failures import failure
from services.rag.model_server import ModelServer
from services.rag.retrievers import Document


class RagflowRetriever:
    """Asks `<base_url>/api/v1/retrieval` with the server's API key. One instance serves all threads."""

    def __init__(
        self, settings: TextModelSettings, dataset_ids: Sequence[str], *, similarity_threshold: float = 0.2,
        vector_similarity_weight: float = 0.3, top_k: int = 1024, document_ids: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._server = ModelServer(settings)
        self._url = settings.base_url.rstrip("/") + "/api/v1/retrieval"
        self._wanted = {
            "dataset_ids": list(dataset_ids), "document_ids": list(document_ids), "top_k": top_k,
            "similarity_threshold": similarity_threshold, "vector_similarity_weight": vector_similarity_weight,
        }

    def retrieve(self, question: str, limit: int) -> list[Document]:
        """The best passages, best first. Raises ModelFailure."""
        if limit < 1:
            return []
        asked = orjson.dumps(self._wanted | {"question": question, "page": 1, "page_size": limit})
        for attempt in self._server.attempts():
            with attempt, self._server.translated():
                found = _documents(self._answer(asked))
        return found[:limit]

    def _answer(self, body: bytes) -> dict[str, Any]:
        due = time.monotonic() + self._settings.timeout
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._server.key}"}
        timeout = self._server.timeout(due)
        with self._server.http.stream("POST", self._url, content=body, headers=headers, timeout=timeout) as response:
            return self._server.answer(response, due)


def _documents(answer: dict[str, Any]) -> list[Document]:
    """The passages of an answer. RAGFlow refuses with HTTP 200 and a code."""
    if answer.get("code") != 0:
        raise failure(ErrorCode.INVALID_REQUEST, f"RAGFlow refused: {answer.get('message')}")
    try:
        return [_document(chunk) for chunk in answer["data"]["chunks"]]
    except (LookupError, TypeError, AttributeError) as error:
        raise failure(ErrorCode.INVALID_RESPONSE, f"{type(error).__name__}: {error}") from None


def _document(chunk: dict[str, Any]) -> Document:
    known = format_chunk({"document_name": chunk.get("document_keyword"), **chunk})
    positions = known["positions"] or []
    page = positions[0][0] if positions and isinstance(positions[0], list) and positions[0] else None
    return Document(str(known["id"]), str(known["content"] or ""), known | {"page": page})
