"""What a model server can do wrong, and the failure that comes of it: its code, its text, in time."""

import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from conf.settings import ModelSettings
from services.errors import InvalidArgument, ModelFailure
from services.events import FILTERED, End, ErrorCode, TextDelta
from services.rag import model_server
from services.rag.chat_models import ModelRequest, OpenAIChatModel
from tests.services.rag.model_server import (
    DONE,
    KEY,
    Script,
    Upstream,
    ask,
    cuts,
    delta,
    event,
    failure,
    model,
    refuses,
    says,
    send,
    start,
    streams,
    trickles,
)

# -- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "code"), [
    (400, ErrorCode.INVALID_REQUEST), (401, ErrorCode.INVALID_REQUEST), (402, ErrorCode.RATE_LIMIT),
    (403, ErrorCode.INVALID_REQUEST), (404, ErrorCode.INVALID_REQUEST), (422, ErrorCode.INVALID_REQUEST),
    (408, ErrorCode.TIMEOUT), (413, ErrorCode.CONTEXT_TOO_LONG), (501, ErrorCode.INVALID_REQUEST),
    (429, ErrorCode.RATE_LIMIT), (500, ErrorCode.MODEL_ERROR), (502, ErrorCode.MODEL_ERROR),
    (503, ErrorCode.SERVICE_UNAVAILABLE), (504, ErrorCode.MODEL_ERROR), (529, ErrorCode.SERVICE_UNAVAILABLE),
])
def test_each_status_has_its_code_and_our_sentence(upstream: Upstream, status: int, code: ErrorCode) -> None:
    upstream.says(refuses(status, {"error": {"message": f"provider says no to {KEY}"}}))
    failed = failure(upstream, retries=0)
    assert failed.code is code
    assert failed.message.endswith(".") and "provider" not in failed.message
    assert "provider says no" in failed.detail and str(status) in failed.detail


@pytest.mark.parametrize("message", [
    "This model's maximum context length is 8192 tokens.", "the request exceeds the available context size",
    "prompt is too long: 210000 tokens > 200000 maximum", "input (3001 tokens) is too large to process",
])
def test_a_prompt_that_is_too_long_is_told_apart(upstream: Upstream, message: str) -> None:
    upstream.says(refuses(400, {"error": {"message": message}}))
    assert failure(upstream).code is ErrorCode.CONTEXT_TOO_LONG
    upstream.says(refuses(400, {"object": "error", "message": message}))
    assert failure(upstream).code is ErrorCode.CONTEXT_TOO_LONG
    upstream.says(streams(event({"error": {"message": message}})))
    assert failure(upstream).code is ErrorCode.CONTEXT_TOO_LONG


@pytest.mark.parametrize(("script", "code"), [
    (streams(event({"error": {"message": "boom"}})), ErrorCode.MODEL_ERROR),
    (refuses(200, {"error": {"message": "boom"}}), ErrorCode.MODEL_ERROR),
    (streams(event(b"{]"), DONE), ErrorCode.INVALID_RESPONSE),
    (streams(event(b"\xff\xfe")), ErrorCode.INVALID_RESPONSE),
    (streams(event([1]), DONE), ErrorCode.INVALID_RESPONSE),
    (streams(event({"choices": 5})), ErrorCode.INVALID_RESPONSE),
    (streams(event({"choices": [{"delta": "x"}]})), ErrorCode.INVALID_RESPONSE),
    (streams(delta("\n"), delta(finish="stop"), DONE), ErrorCode.INVALID_RESPONSE),
    (streams(DONE), ErrorCode.INVALID_RESPONSE),
    (streams(), ErrorCode.INVALID_RESPONSE),
    (streams(delta("half")), ErrorCode.INVALID_RESPONSE),
    (cuts(delta("half")), ErrorCode.INVALID_RESPONSE),
    (cuts(delta("half"), reset=True), ErrorCode.NETWORK_ERROR),
    (refuses(200, "<html>", "text/html"), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"choices": []}), ErrorCode.INVALID_RESPONSE),
    (refuses(200, "garbage", Content_Encoding="gzip"), ErrorCode.INVALID_RESPONSE),
    (refuses(200, "[1]"), ErrorCode.INVALID_RESPONSE),
    (refuses(200, '{"choices": [{"message": {"content": "Yes.'), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"choices": [{"message": {"content": "Yes."}}]}), ErrorCode.INVALID_RESPONSE),
    (refuses(200, {"error": {"message": "maximum context length"}}, "text/plain"), ErrorCode.CONTEXT_TOO_LONG),
    (says(b"hello, I am a proxy", kind="text/plain"), ErrorCode.INVALID_RESPONSE),
    (says(), ErrorCode.INVALID_RESPONSE),
    (says(event({"choices": [{"delta": {"content": "é"}}]}), b'data: {"choices": [{"delta": {"content": "\xc3'),
     ErrorCode.INVALID_RESPONSE),
    (streams(delta("<think>Hm.</think>"), delta(finish="stop"), DONE), ErrorCode.INVALID_RESPONSE),
])
def test_a_broken_answer_is_a_failure_with_its_code(upstream: Upstream, script: Script, code: ErrorCode) -> None:
    upstream.says(script)
    assert failure(upstream).code is code


AZURE = {"error": {"code": "content_filter", "message": "The prompt triggered a policy.", "innererror": {}}}


@pytest.mark.parametrize("script", [
    streams(delta("no"), delta(finish="content_filter"), DONE), streams(delta(finish="content_filter"), DONE),
    streams(delta("<think>Hm."), delta(finish="content_filter")),
    refuses(200, {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}),
    streams(delta("no"), event(AZURE)), refuses(200, AZURE), refuses(400, AZURE), refuses(403, AZURE),
    refuses(400, {"error": {"type": "content_policy_violation", "message": "Rejected."}}),
])
def test_a_provider_that_filters_is_asked_once_and_named_in_a_sentence(upstream: Upstream, script: Script) -> None:
    upstream.says(script)
    failed = failure(upstream, retries=2)
    assert (failed.code, failed.message) == (ErrorCode.INVALID_REQUEST, FILTERED)
    assert len(upstream.requests) == 1


def test_a_refusal_that_only_speaks_of_filters_is_none_of_a_filter(upstream: Upstream) -> None:
    upstream.says(refuses(400, {"error": {"message": 'no model "content_filter", nor "code": "content_filter"'}}))
    assert failure(upstream).message != FILTERED


def test_a_line_without_end_is_a_broken_answer_long_before_its_time_is_up(upstream: Upstream) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, b"data: ", *[b"x" * 1_000_000] * 9)
        upstream.waits(handler)

    upstream.says(script)
    assert failure(upstream, first_token_timeout=15).code is ErrorCode.INVALID_RESPONSE


def test_what_came_before_the_failure_was_passed_on(upstream: Upstream) -> None:
    upstream.says(streams(delta("half"), event({"error": "boom"})))
    events = model(upstream).stream(ModelRequest([], ""))
    assert next(events) == TextDelta("half")
    with pytest.raises(ModelFailure, match="reported an error"):
        next(events)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1", "nonsense"])
def test_a_server_that_cannot_be_reached_is_a_network_error(upstream: Upstream, url: str) -> None:
    assert failure(url).code is ErrorCode.NETWORK_ERROR


@pytest.mark.parametrize("script", [
    refuses(401, f"Incorrect API key provided: {KEY}", "text/plain"),
    refuses(200, {"error": f"bad key {KEY}"}), refuses(500, "x" * 1_980 + KEY, "text/plain"),
    refuses(200, f"<p>{KEY}", "text/html"),
    streams(event({"error": f"bad key {KEY}"})),
    streams(event(f'"{KEY}'.encode())),
])
def test_the_key_is_in_no_failure_and_no_traceback(upstream: Upstream, script: Script) -> None:
    upstream.says(script)
    failed = failure(upstream)
    assert KEY not in f"{failed!r} {failed.message} {failed.detail}"
    assert KEY[:8] not in failed.detail
    assert failed.__cause__ is None and (failed.__context__ is None or failed.__suppress_context__)


@pytest.mark.parametrize("settings", [
    {"base_url": "http://127.0.0.1", "api_key": f"{KEY}\u00e9"},
    {"base_url": "http://127.0.0.1", "api_key": f"a\n{KEY}"},
    {"base_url": "http://127.0.0.1:x", "api_key": KEY},
])
def test_settings_that_can_never_work_are_refused_at_the_start(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        OpenAIChatModel(ModelSettings(name="tiny", **settings))
    assert KEY not in caught.value.message


# -- time ---------------------------------------------------------------------------------------


def timed_out(upstream: Upstream, **settings: Any) -> float:
    began = time.monotonic()
    assert failure(upstream, **settings).code is ErrorCode.TIMEOUT
    return time.monotonic() - began


def test_a_server_that_sends_no_status_is_given_up_at_the_first_token_timeout_of_each_try(upstream: Upstream) -> None:
    upstream.says(upstream.waits)
    assert timed_out(upstream, first_token_timeout=0.2) < 2
    assert len(upstream.requests) == 3


@pytest.mark.parametrize("body", [b'{"choices": [{"message": {"content": "', b"", b"data: {", b"<html>"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
def test_a_body_that_trickles_obeys_the_first_token_timeout(upstream: Upstream, body: bytes, kind: str) -> None:
    upstream.says(trickles(body, kind=kind))
    assert timed_out(upstream, first_token_timeout=0.3, retries=0) < 2


def test_a_refusal_that_trickles_is_a_refusal(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_server, "_REFUSAL_TIME", 0.2)
    upstream.says(trickles(b"no such model", 404))
    began = time.monotonic()
    failed = failure(upstream)
    assert (failed.code, time.monotonic() - began < 2) == (ErrorCode.INVALID_REQUEST, True)
    assert "no such model" in failed.detail


def test_a_status_is_no_first_token_and_neither_is_a_role(upstream: Upstream) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, delta("", role="assistant"))
        upstream.waits(handler)

    upstream.says(script)
    assert timed_out(upstream, first_token_timeout=0.3) < 2


def test_a_stream_that_falls_silent_is_given_up_at_the_idle_timeout(upstream: Upstream) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, delta("first"))
        upstream.waits(handler)

    upstream.says(script)
    assert timed_out(upstream, idle_timeout=0.2) < 2


@pytest.mark.parametrize("part", [delta("more "), b": still here\n\n"])
def test_a_stream_that_never_ends_is_given_up_at_the_total_timeout(upstream: Upstream, part: bytes) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        while not upstream.released.wait(0.02):
            send(handler, part)

    upstream.says(script)
    assert timed_out(upstream, total_timeout=0.5) < 2


def test_a_request_may_bound_its_answer_further(upstream: Upstream) -> None:
    upstream.says(upstream.waits)
    began = time.monotonic()
    with pytest.raises(ModelFailure) as caught:
        list(model(upstream, total_timeout=60).stream(ModelRequest([], "", seconds=0.3)))
    assert caught.value.code is ErrorCode.TIMEOUT
    assert time.monotonic() - began < 2


def test_a_slow_reader_is_not_the_models_silence(upstream: Upstream) -> None:
    upstream.says(streams(delta("a"), delta("b"), delta(finish="stop"), DONE))
    events = model(upstream, idle_timeout=0.2).stream(ModelRequest([], ""))
    next(events)
    time.sleep(0.5)
    assert list(events) == [TextDelta("b"), End()]


def test_an_answer_that_is_whole_does_not_wait_for_the_connection_to_close(upstream: Upstream) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, delta("Yes."), delta(finish="stop"))
        upstream.waits(handler)

    upstream.says(script)
    began = time.monotonic()
    assert ask(model(upstream)) == [TextDelta("Yes."), End()]
    assert time.monotonic() - began < 5
