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
from services.rag.text_batches import by_index, in_batches

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
        self._client = openai.OpenAI(**self._server.openai_options)

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
                vectors = by_index(self._answer(texts).get("data"), len(texts), _vector)
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


def _vector(item: dict[str, Any]) -> Vector:
    """A vector from a list of numbers, or from little-endian float32 in base64, which servers may send unasked."""
    value = item["embedding"]
    if isinstance(value, str):
        vector = array("f", base64.b64decode(value, validate=True))
        if sys.byteorder == "big":
            vector.byteswap()
    else:
        vector = array("f", value)
    if not vector or not all(map(isfinite, vector)):
        raise ValueError("a vector has no numbers, or some that are not finite")
    return vector
