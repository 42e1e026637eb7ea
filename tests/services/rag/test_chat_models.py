"""The adapter for OpenAI-compatible servers: what it sends, what it reads, when it tries again."""

import json
import time
from http.server import BaseHTTPRequestHandler

import pytest

from conf.settings import ModelSettings
from db.jsontext import clean_text
from services.events import End, ErrorCode, FinishReason, ReasoningDelta, TextDelta, Usage
from services.rag.chat_models import ModelRequest, OpenAIChatModel
from tests.services.rag.model_server import (
    DONE,
    HELLO,
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
    send,
    start,
    streams,
)

# -- what is sent -------------------------------------------------------------------------------


def test_sends_the_messages_the_model_name_and_the_key(upstream: Upstream) -> None:
    upstream.says(HELLO)
    ask(model(upstream))
    (sent,) = upstream.requests
    assert sent["messages"] == [{"role": "user", "content": "Why?"}]
    assert (sent["model"], sent["stream"], sent["stream_options"]) == ("tiny", True, {"include_usage": True})
    assert upstream.keys == [f"Bearer {KEY}"]


def test_really_sends_each_sampling_parameter_and_no_other(upstream: Upstream) -> None:
    upstream.says(HELLO)
    given = {
        "temperature": 0.1, "top_p": 0.3, "frequency_penalty": 0.7, "presence_penalty": 0.4, "max_tokens": 512,
    }
    ask(model(upstream), **given, quote=1)
    ask(model(upstream))
    assert {key: value for key, value in upstream.requests[0].items() if key in given} == given
    assert set(upstream.requests[1]) == {"messages", "model", "stream", "stream_options"}
    assert "quote" not in upstream.requests[0]


def test_sends_half_a_surrogate_pair_as_a_replacement_character(upstream: Upstream) -> None:
    upstream.says(HELLO)
    list(model(upstream).stream(ModelRequest([{"role": "user", "content": "\ud83d!"}], "")))
    assert upstream.requests[0]["messages"][0]["content"] == "\ufffd!"


def test_works_without_a_key(upstream: Upstream) -> None:
    upstream.says(HELLO)
    assert ask(OpenAIChatModel(ModelSettings(base_url=upstream.url, name="tiny")))[0] == TextDelta("Hel")


def test_uses_a_connection_again(upstream: Upstream) -> None:
    upstream.says(HELLO)
    chat_model = model(upstream)
    assert ask(chat_model) == ask(chat_model)
    assert len(set(upstream.peers)) == 1


# -- a good answer ------------------------------------------------------------------------------


def test_yields_each_delta_and_the_end(upstream: Upstream) -> None:
    upstream.says(HELLO)
    assert ask(model(upstream)) == [TextDelta("Hel"), TextDelta("lo"), End(FinishReason.STOP)]


def test_a_delta_is_there_before_the_next_is_sent(upstream: Upstream) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, delta("first"))
        upstream.waits(handler)

    upstream.says(script)
    events = model(upstream).stream(ModelRequest([], ""))
    assert next(events) == TextDelta("first")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_yields_reasoning_before_text(upstream: Upstream, key: str) -> None:
    role, thought = delta("", role="assistant"), delta(**{key: "Hm."})
    upstream.says(streams(role, thought, delta("Yes."), delta(finish="stop"), DONE))
    assert ask(model(upstream)) == [ReasoningDelta("Hm."), TextDelta("Yes."), End()]


def test_reports_usage_that_comes_after_the_finish_signal(upstream: Upstream) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})
    upstream.says(streams(delta("Yes."), delta(finish="stop"), usage, DONE))
    assert ask(model(upstream))[-1] == End(usage=Usage(7, 2))


def test_says_that_an_answer_hit_its_limit(upstream: Upstream) -> None:
    upstream.says(streams(delta("Yes, b"), delta(finish="length"), DONE))
    assert ask(model(upstream))[-1] == End(FinishReason.LENGTH)


def test_a_limit_that_reasoning_used_up_is_no_failure(upstream: Upstream) -> None:
    upstream.says(streams(delta(reasoning="Hm"), delta(finish="length"), DONE))
    assert ask(model(upstream)) == [ReasoningDelta("Hm"), End(FinishReason.LENGTH)]


@pytest.mark.parametrize("ending", [[delta(finish="stop")], [DONE], [DONE.strip()]])
def test_either_finish_signal_is_enough(upstream: Upstream, ending: list[bytes]) -> None:
    upstream.says(streams(delta("Yes."), *ending))
    assert ask(model(upstream)) == [TextDelta("Yes."), End()]


def test_a_connection_that_breaks_behind_the_finish_signal_changes_nothing(upstream: Upstream) -> None:
    upstream.says(cuts(delta("Yes."), delta(finish="stop")))
    assert ask(model(upstream)) == [TextDelta("Yes."), End()]


def test_reads_lines_however_they_are_cut(upstream: Upstream) -> None:
    whole = b": hi\r\n\r\nevent: x\r\n" + delta("a\u2028b\x85c").replace(b"\n", b"\r\n")
    raw = json.dumps({"choices": [{"delta": {"content": "é\u2028\u0085"}}]}, ensure_ascii=False).encode()
    stream = whole + b"data:" + raw + b"\n\n" + delta(finish="stop") + DONE
    upstream.says(streams(*(stream[at : at + 1] for at in range(len(stream)))))
    assert ask(model(upstream)) == [TextDelta("a\u2028b\x85c"), TextDelta("é\u2028\u0085"), End()]


def test_passes_the_halves_of_a_surrogate_pair_on(upstream: Upstream) -> None:
    halves = (event(b'{"choices":[{"delta":{"content":"%s"}}]}' % half) for half in (rb"\ud83d", rb"\ude00"))
    upstream.says(streams(*halves, delta(finish="stop"), DONE))
    texts = [part.text for part in ask(model(upstream)) if isinstance(part, TextDelta)]
    assert texts == ["\ud83d", "\ude00"]
    assert clean_text("".join(texts)) == "😀"


# -- again, and away ----------------------------------------------------------------------------


@pytest.mark.parametrize("script", [
    refuses(429, "slow down"), refuses(500, "oops"), refuses(503, "later", Retry_After="0"), refuses(529, "busy"),
    cuts(), cuts(reset=True),
])
def test_tries_again_before_the_first_token(upstream: Upstream, script: Script) -> None:
    upstream.says(script, script, HELLO)
    assert ask(model(upstream, retries=2))[0] == TextDelta("Hel")
    assert len(upstream.requests) == 3


@pytest.mark.parametrize("script", [
    refuses(400, "no"), refuses(401, "no"), refuses(402, "pay"), refuses(404, "no"),
    refuses(429, '{"error": {"code": "insufficient_quota"}}'), refuses(429, "no", Retry_After="3600"),
    streams(event({"error": "boom"})), streams(event(b"{]")), cuts(delta("half")), cuts(delta("half"), reset=True),
])
def test_does_not_try_again_what_will_not_pass_or_has_begun(upstream: Upstream, script: Script) -> None:
    upstream.says(script)
    failure(upstream, retries=2)
    assert len(upstream.requests) == 1


def test_gives_up_after_the_last_retry(upstream: Upstream) -> None:
    upstream.says(refuses(503, "later"))
    assert failure(upstream, retries=2).code is ErrorCode.SERVICE_UNAVAILABLE
    assert len(upstream.requests) == 3


def test_closing_the_iterator_closes_the_stream(upstream: Upstream) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        while not upstream.released.is_set():
            send(handler, delta("more "))
            time.sleep(0.01)

    upstream.says(script)
    events = model(upstream).stream(ModelRequest([], ""))
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert upstream.left.wait(5)
