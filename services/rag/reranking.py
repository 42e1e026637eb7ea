"""How well passages answer a question, over a `/rerank` API as Jina, Cohere, vLLM and llama.cpp speak it."""

import time
from collections.abc import Sequence
from math import exp, isfinite
from typing import Any, Protocol

import orjson

from conf.settings import RerankSettings
from db.jsontext import clean_text
from services.rag.model_server import ModelServer
from services.rag.text_batches import by_index, in_batches


class RerankModel(Protocol):
    """Anything that scores texts for a question. A failure is a ModelFailure."""

    @property
    def name(self) -> str: ...

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """One score from 0 to 1 for each text, in the texts' order."""
        ...


class HTTPRerankModel:
    """A model behind a `/rerank` API. One instance serves all threads."""

    def __init__(self, settings: RerankSettings) -> None:
        self.name = settings.name
        self._settings = settings
        self._server = ModelServer(settings)
        self._url = settings.base_url.rstrip("/") + "/rerank"

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """One score from 0 to 1 for each text, in the texts' order; a text over the limit is cut."""
        asked = clean_text(question[: self._settings.text_length])
        return _normalised(in_batches(lambda batch: self._ask(asked, batch), texts, self._settings))

    def _ask(self, question: str, texts: list[str]) -> list[float]:
        """One request, with its retries: the scores as the server gives them."""
        asked = {"model": self._settings.name, "query": question, "documents": texts, "top_n": len(texts)}
        for attempt in self._server.attempts():
            with attempt, self._server.translated():
                scores = by_index(self._answer(orjson.dumps(asked)).get("results"), len(texts), _score)
        return scores

    def _answer(self, body: bytes) -> dict[str, Any]:
        due = time.monotonic() + self._settings.timeout
        headers = {"Content-Type": "application/json"}
        if self._server.key:
            headers["Authorization"] = f"Bearer {self._server.key}"
        timeout = self._server.timeout(due)
        with self._server.http.stream("POST", self._url, content=body, headers=headers, timeout=timeout) as response:
            return self._server.answer(response, due)


def _score(result: dict[str, Any]) -> float:
    score = result["relevance_score"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score):
        raise ValueError(f"{score!r} is no score")
    return float(score)


def _normalised(scores: list[float]) -> list[float]:
    """Scores from 0 to 1 as they are; what goes beyond is logits, which a sigmoid maps there in the same order."""
    if all(0 <= score <= 1 for score in scores):
        return scores
    return [1 / (1 + exp(-max(min(score, 500.0), -500.0))) for score in scores]
