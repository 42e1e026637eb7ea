"""Scores of passages for a question: what is sent, what is read, what is refused."""

import time
from typing import Any

import pytest

from conf.settings import RerankSettings
from services.errors import ModelFailure
from services.events import ErrorCode
from services.rag.reranking import HTTPRerankModel
from tests.services.rag.model_server import KEY, Script, Upstream, cuts, refuses, trickles


def model(upstream: Upstream | str, **settings: Any) -> HTTPRerankModel:
    url = upstream if isinstance(upstream, str) else upstream.url
    return HTTPRerankModel(RerankSettings(**{"base_url": url, "api_key": KEY, "name": "judge"} | settings))


def failure(upstream: Upstream | str, **settings: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        model(upstream, **settings).scores("q", ["a", "b"])
    return caught.value


def scored(*scores: Any) -> Script:
    """An answer with these scores, the last one first."""
    results = [{"index": n, "relevance_score": score} for n, score in enumerate(scores)]
    return refuses(200, {"model": "judge", "results": results[::-1]})


def test_sends_the_question_the_texts_and_the_key(upstream: Upstream) -> None:
    upstream.says(scored(0.1, 0.2))
    model(upstream, base_url=upstream.url + "/").scores("why?", ["a", "b\ud83d"])
    assert upstream.requests == [{"model": "judge", "query": "why?", "documents": ["a", "b\ufffd"], "top_n": 2}]
    assert (upstream.paths, upstream.keys) == (["/v1/rerank"], [f"Bearer {KEY}"])


def test_sends_no_key_where_there_is_none(upstream: Upstream) -> None:
    upstream.says(scored(0.5))
    model(upstream, api_key="").scores("q", ["a"])
    assert upstream.keys == [None]


@pytest.mark.parametrize(("given", "expected"), [
    ([0.9, 0.1], [0.9, 0.1]), ([0, 1], [0, 1]), ([2, -2], [0.8808, 0.1192]),
    ([1e9, -1e9], [1, 0]),
])
def test_scores_come_in_the_texts_order_from_0_to_1(upstream: Upstream, given: Any, expected: Any) -> None:
    upstream.says(scored(*given))
    assert model(upstream).scores("q", ["a", "b"]) == pytest.approx(expected, abs=1e-4)


def test_one_score_beyond_makes_logits_of_all_over_all_batches(upstream: Upstream) -> None:
    upstream.says(scored(0.0, 0.5), scored(-3.0))
    found = model(upstream, batch=2).scores("q", ["a", "b", "c"])
    assert found == pytest.approx([0.5, 0.6225, 0.0474], abs=1e-4)


def test_no_texts_are_no_request(upstream: Upstream) -> None:
    assert model(upstream).scores("q", []) == []
    assert upstream.requests == []


def test_question_and_texts_are_cut_to_their_limit(upstream: Upstream) -> None:
    upstream.says(scored(0.5, 0.5))
    model(upstream, text_length=100).scores("q" * 200, ["x" * 200, ""])
    (sent,) = upstream.requests
    assert (sent["query"], sent["documents"]) == ("q" * 100, ["x" * 100, " "])


@pytest.mark.parametrize("script", [refuses(429, "slow"), refuses(502, "oops"), cuts(reset=True)])
def test_what_may_pass_is_tried_again(upstream: Upstream, script: Script) -> None:
    upstream.says(script, script, scored(0.1, 0.2))
    assert model(upstream).scores("q", ["a", "b"]) == [0.1, 0.2]
    assert len(upstream.requests) == 3


@pytest.mark.parametrize(("script", "code"), [
    (refuses(401, f"bad key {KEY}"), ErrorCode.INVALID_REQUEST), (refuses(413, "big"), ErrorCode.CONTEXT_TOO_LONG),
    (refuses(200, {"error": "boom"}), ErrorCode.MODEL_ERROR), (refuses(200, "no"), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {}), ErrorCode.INVALID_RESPONSE), (refuses(200, {"results": {}}), ErrorCode.INVALID_RESPONSE),
    (scored(0.5), ErrorCode.INVALID_RESPONSE), (scored(0.5, 0.5, 0.5), ErrorCode.INVALID_RESPONSE),
    (scored(0.5, None), ErrorCode.INVALID_RESPONSE), (scored(0.5, "1"), ErrorCode.INVALID_RESPONSE),
    (scored(0.5, True), ErrorCode.INVALID_RESPONSE),
    (refuses(200, '{"results": [{"index": 0, "relevance_score": NaN}]}'), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"results": [{"index": 1, "relevance_score": 1}] * 2}), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"results": [{"index": n, "relevance_score": 1} for n in (0, 2)]}), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"results": [{"index": n, "score": 1} for n in (0, 1)]}), ErrorCode.INVALID_RESPONSE),
])
def test_a_bad_answer_is_a_failure_with_its_code_and_without_the_key(
    upstream: Upstream, script: Script, code: ErrorCode
) -> None:
    upstream.says(script)
    failed = failure(upstream, retries=0)
    assert failed.code is code
    assert KEY not in f"{failed!r} {failed.message} {failed.detail}"


def test_a_server_that_trickles_is_given_up_in_time(upstream: Upstream) -> None:
    upstream.says(trickles(b'{"results": ['))
    began = time.monotonic()
    assert failure(upstream, timeout=0.3, retries=0).code is ErrorCode.TIMEOUT
    assert time.monotonic() - began < 2


def test_a_server_that_cannot_be_reached_is_a_network_error(upstream: Upstream) -> None:
    assert failure("http://127.0.0.1:1/v1").code is ErrorCode.NETWORK_ERROR
