"""Texts as vectors: what is sent, what is read, what is refused."""

import base64
import struct
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from conf.settings import EmbeddingSettings
from services.errors import InvalidArgument, ModelFailure
from services.events import ErrorCode
from services.rag.embeddings import OpenAIEmbeddingModel
from tests.services.rag.model_server import KEY, Script, Upstream, cuts, refuses, says, start, trickles


def model(upstream: Upstream | str, **settings: Any) -> OpenAIEmbeddingModel:
    url = upstream if isinstance(upstream, str) else upstream.url
    return OpenAIEmbeddingModel(EmbeddingSettings(base_url=url, api_key=KEY, name="tiny", **settings))


def failure(upstream: Upstream | str, texts: tuple[str, ...] = ("a", "b"), **settings: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        model(upstream, **settings).embed(texts)
    return caught.value


def item(index: Any, embedding: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": embedding}


def encoded(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def answers(*items: Any) -> Script:
    return refuses(200, {"object": "list", "model": "tiny", "data": list(items)})


class Lengths:
    """A server whose vector of a text is its length, and its place in the request."""

    def __init__(self, upstream: Upstream, longest: int = 1_000_000, most: int = 1_000_000) -> None:
        self.upstream, self.longest, self.most = upstream, longest, most

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        texts = self.upstream.requests[-1]["input"]
        too_long = max(map(len, texts)) > self.longest or sum(map(len, texts)) > self.most
        vectors = [item(n, [float(len(text)), float(n)]) for n, text in enumerate(texts)]
        if too_long:
            refuses(500, {"error": {"message": "input (900 tokens) is too large to process"}})(handler)
        else:
            answers(*reversed(vectors))(handler)


def test_sends_the_texts_the_model_name_and_the_key(upstream: Upstream) -> None:
    upstream.says(answers(item(0, [1, 2]), item(1, [3, 4])))
    model(upstream).embed(["a", "b"])
    assert upstream.requests == [{"input": ["a", "b"], "model": "tiny", "encoding_format": "base64"}]
    assert (upstream.paths, upstream.keys) == (["/v1/embeddings"], [f"Bearer {KEY}"])


@pytest.mark.parametrize("vectors", [
    ([1, 2.5], [-3, 0]), (encoded(1, 2.5), encoded(-3, 0)), ([1, 2.5], encoded(-3, 0)),
])
def test_vectors_come_in_the_texts_order_from_numbers_and_from_base64(upstream: Upstream, vectors: Any) -> None:
    upstream.says(answers(item(1, vectors[1]), item(0, vectors[0])))
    found = model(upstream).embed(["a", "b"])
    assert [list(vector) for vector in found] == [[1.0, 2.5], [-3.0, 0.0]]
    assert found[0].tobytes() == struct.pack("=2f", 1.0, 2.5)


def test_many_texts_go_in_batches_and_none_goes_nowhere(upstream: Upstream) -> None:
    upstream.says(Lengths(upstream))
    texts = ["x" * n for n in range(1, 8)]
    assert [vector[0] for vector in model(upstream, batch=3).embed(texts)] == [1, 2, 3, 4, 5, 6, 7]
    assert [len(sent["input"]) for sent in upstream.requests] == [3, 3, 1]
    assert model(upstream).embed([]) == []
    assert len(upstream.requests) == 3


def test_a_text_is_cut_to_its_limit_cleaned_and_never_empty(upstream: Upstream) -> None:
    upstream.says(Lengths(upstream))
    model(upstream, text_length=100).embed(["é" * 101, "", "\x00", "a\ud83d"])
    assert upstream.requests[0]["input"] == ["é" * 100, " ", " ", "a\ufffd"]


def test_a_text_that_the_server_cannot_read_whole_is_cut_until_it_can(upstream: Upstream) -> None:
    upstream.says(Lengths(upstream, longest=300))
    found = model(upstream).embed(["short", "x" * 1000, "y" * 290])
    assert [vector[0] for vector in found] == [5, 250, 290]


def test_texts_that_are_too_much_together_go_one_by_one_and_whole(upstream: Upstream) -> None:
    upstream.says(Lengths(upstream, most=500))
    assert [vector[0] for vector in model(upstream).embed(["x" * 300] * 5)] == [300] * 5


def test_a_server_that_can_read_nothing_is_given_up(upstream: Upstream) -> None:
    upstream.says(Lengths(upstream, longest=10))
    assert failure(upstream, ("x" * 5000,) * 32).code is ErrorCode.CONTEXT_TOO_LONG
    assert len(upstream.requests) < 20


@pytest.mark.parametrize("script", [refuses(429, "slow"), refuses(500, "oops"), refuses(503, "later"), cuts(),
                                    cuts(reset=True)])
def test_what_may_pass_is_tried_again(upstream: Upstream, script: Script) -> None:
    upstream.says(script, script, answers(item(0, [1]), item(1, [2])))
    assert len(model(upstream, retries=2).embed(["a", "b"])) == 2
    assert len(upstream.requests) == 3


@pytest.mark.parametrize(("script", "code"), [
    (refuses(401, f"bad key {KEY}"), ErrorCode.INVALID_REQUEST), (refuses(404, "no"), ErrorCode.INVALID_REQUEST),
    (refuses(402, "pay"), ErrorCode.RATE_LIMIT), (refuses(501, "not supported"), ErrorCode.INVALID_REQUEST),
    (refuses(200, {"error": f"boom {KEY}"}), ErrorCode.MODEL_ERROR),
    (refuses(200, "<html>", "text/html"), ErrorCode.INVALID_RESPONSE),
    (says(kind="application/json"), ErrorCode.INVALID_RESPONSE),
    (refuses(200, []), ErrorCode.INVALID_RESPONSE), (refuses(200, {"data": 5}), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"object": "list"}), ErrorCode.INVALID_RESPONSE), (answers(), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, [1]), item(2, [1])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(0, [1])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(2, [1])), ErrorCode.INVALID_RESPONSE),
    (answers(item("0", [1]), item(1, [1])), ErrorCode.INVALID_RESPONSE),
    (answers(item([], [1]), item(1, [1])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, []), item(1, [])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, [1, 2])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, None)), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, ["1"])), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, [1e300])), ErrorCode.INVALID_RESPONSE),
    (refuses(200, '{"data": [{"index": 0, "embedding": [NaN]}]}'), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, encoded(float("nan")))), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, encoded(float("inf")))), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, "AAA")), ErrorCode.INVALID_RESPONSE),
    (answers(item(0, [1]), item(1, "é")), ErrorCode.INVALID_RESPONSE),
    (answers([0, [1]], [1, [1]]), ErrorCode.INVALID_RESPONSE),
])
def test_a_bad_answer_is_a_failure_with_its_code_and_without_the_key(
    upstream: Upstream, script: Script, code: ErrorCode
) -> None:
    upstream.says(script)
    failed = failure(upstream, retries=0)
    assert failed.code is code
    assert KEY not in f"{failed!r} {failed.message} {failed.detail}"


def test_batches_of_different_dimensions_are_refused(upstream: Upstream) -> None:
    upstream.says(answers(item(0, [1])), answers(item(0, [1, 2])))
    assert failure(upstream, batch=1).code is ErrorCode.INVALID_RESPONSE


def hangs(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.6)
    start(handler)


@pytest.mark.parametrize("script", [hangs, trickles(b'{"data": [')])
def test_a_server_that_hangs_or_trickles_is_given_up_in_time(upstream: Upstream, script: Script) -> None:
    upstream.says(script)
    began = time.monotonic()
    assert failure(upstream, timeout=0.3, retries=0).code is ErrorCode.TIMEOUT
    assert time.monotonic() - began < 2


def test_a_server_that_cannot_be_reached_is_a_network_error(upstream: Upstream) -> None:
    assert failure("http://127.0.0.1:1/v1").code is ErrorCode.NETWORK_ERROR


@pytest.mark.parametrize("settings", [{"api_key": f"a\n{KEY}"}, {"base_url": "http://127.0.0.1:x"}])
def test_settings_that_can_never_work_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        OpenAIEmbeddingModel(EmbeddingSettings(**{"base_url": "http://127.0.0.1", "name": "tiny"} | settings))
