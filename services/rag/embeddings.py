"""Texts as vectors, over any server that speaks OpenAI's embeddings API."""

import base64
import sys
import time
from array import array
from collections.abc import Sequence
from math import isfinite
from typing import Any, Protocol, TypeAlias

import openai

from conf.settings import EmbeddingSettings
from services.events import ErrorCode
from services.rag.model_failures import failure
from services.rag.model_server import ModelServer
from services.rag.text_batches import in_batches

Vector: TypeAlias = "array[float]"  # of type code "f": `tobytes()`, and its buffer, are float32 in machine order


class EmbeddingModel(Protocol):
    """Anything that turns texts into vectors. A failure is a ModelFailure."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in the texts' order, all of one dimension."""
        ...


class OpenAIEmbeddingModel:
    """A model behind an OpenAI-compatible server. One instance serves all threads."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        self.name = settings.name
        self._settings = settings
        self._server = ModelServer(settings)
        self._client = openai.OpenAI(
            base_url=settings.base_url, max_retries=0, http_client=self._server.http,
            api_key=self._server.key or "none",  # the client refuses an empty one; servers without keys ignore it
        )

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in the texts' order, all of one dimension.

        A text over the limit is cut, further where the server says that it can't read so much.
        """
        vectors = in_batches(self._ask, texts, self._settings)
        sizes = {len(vector) for vector in vectors}
        if len(sizes) > 1:
            raise failure(ErrorCode.INVALID_RESPONSE, f"vectors of several dimensions: {sorted(sizes)}")
        return vectors

    def _ask(self, texts: list[str]) -> list[Vector]:
        """One request, with its retries."""
        for attempt in self._server.attempts():
            with attempt, self._server.translated():
                vectors = _vectors(self._answer(texts), len(texts))
        return vectors

    def _answer(self, texts: list[str]) -> dict[str, Any]:
        due = time.monotonic() + self._settings.timeout
        try:
            with self._client.embeddings.with_streaming_response.create(
                model=self._settings.name, input=texts, encoding_format="base64", timeout=self._server.timeout(due),
            ) as opened:
                return self._server.answer(opened.http_response, due)
        except openai.APIConnectionError as error:  # it wraps what the connection said
            raise error.__cause__ or error from None


def _vectors(answer: dict[str, Any], count: int) -> list[Vector]:
    """The vectors of an answer by their index. Raises ModelFailure unless it holds each once, of finite numbers."""
    try:
        items = answer["data"]
        by_index = {item["index"]: _vector(item["embedding"]) for item in items}
        if len(items) != count or sorted(by_index) != list(range(count)):
            raise ValueError(f"{len(items)} vectors, of {sorted(by_index)}, for {count} texts")
        if not all(vector and all(map(isfinite, vector)) for vector in by_index.values()):
            raise ValueError("a vector has no numbers, or some that are not finite")
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise failure(ErrorCode.INVALID_RESPONSE, f"{type(error).__name__}: {error}") from None
    return [by_index[n] for n in range(count)]


def _vector(value: Any) -> Vector:
    """A vector from a list of numbers, or from little-endian float32 in base64, which servers may send unasked."""
    if not isinstance(value, str):
        return array("f", value)
    vector = array("f", base64.b64decode(value, validate=True))
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
