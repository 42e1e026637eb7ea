"""The adapter for OpenAI-compatible servers: what it sends, what it reads, when it tries again."""

import json
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import stamina

from conf.settings import ModelSettings
from db.jsontext import clean_text
from services.events import End, ErrorCode, FinishReason, ReasoningDelta, TextDelta, Usage
from services.rag.chat_models import ModelRequest, OpenAIChatModel
from services.rag.model_stream import STREAM
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
    says,
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


@pytest.mark.parametrize(("prompt", "completion", "told"), [
    (2**64 - 1, 2, Usage(0, 2)), (7, 2**63, Usage(7, 0)), (-1, -2, Usage()), (7.5, "2", Usage()),
    (2**31 - 1, 0, Usage(2**31 - 1)),
])
def test_a_count_of_tokens_that_cannot_be_is_none(
    upstream: Upstream, prompt: Any, completion: Any, told: Usage
) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
    upstream.says(streams(delta("Yes."), delta(finish="stop"), usage, DONE))
    assert ask(model(upstream)) == [TextDelta("Yes."), End(usage=told)]


def test_a_content_in_parts_is_read_as_its_texts_and_thoughts(upstream: Upstream) -> None:
    contents = [
        [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, {"type": "text", "text": "."}]}], [],
        [{"type": "text", "text": "Not "}, {"type": "image_url"}], "allow",
        [{"text": "ed"}, {"type": "text", "text": "."}], [{"type": "thinking", "thinking": ""}],
    ]
    parts = [event({"choices": [{"delta": {"content": content}}]}) for content in contents]
    upstream.says(streams(*parts, delta(finish="stop"), DONE))
    said = [ReasoningDelta("Hm."), *map(TextDelta, ("Not ", "allow", "ed", "."))]
    assert ask(model(upstream)) == [*said, End()]
    choice = {"finish_reason": "stop", "message": {"content": contents[2]}}
    upstream.says(says(json.dumps({"choices": [choice]}).encode()))
    assert ask(model(upstream)) == [TextDelta("Not "), End()]


@pytest.mark.parametrize("content", [5, {"text": "no"}, [["no"]], ["no"], [{"type": "thinking"}]])
def test_a_content_of_another_shape_is_a_failure(upstream: Upstream, content: Any) -> None:
    upstream.says(streams(event({"choices": [{"delta": {"content": content}}]}), delta(finish="stop"), DONE))
    assert failure(upstream).code is ErrorCode.INVALID_RESPONSE


def test_other_answers_than_the_first_are_passed_over(upstream: Upstream) -> None:
    both = [
        {"index": 1, "delta": {"content": "No."}, "finish_reason": "length"},
        {"index": 0, "delta": {"content": "Yes."}},
    ]
    other = event({"choices": both[:1]})
    upstream.says(streams(other, event({"choices": both}), other, delta(finish="stop"), DONE))
    assert ask(model(upstream)) == [TextDelta("Yes."), End()]


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


def test_lines_that_are_no_data_are_passed_over(upstream: Upstream) -> None:
    noise = b"garbage\n<html>\nid: 1\nretry: 10\ndatum: {]\n\xff\xfe\n\n"
    upstream.says(streams(noise, delta("Yes."), noise, delta(finish="stop"), noise, DONE))
    assert ask(model(upstream)) == [TextDelta("Yes."), End()]


def test_what_is_cut_behind_the_finish_signal_changes_nothing(upstream: Upstream) -> None:
    upstream.says(says(delta("Yes."), delta(finish="stop"), b'data: {"usage": {"prompt_tok', kind=STREAM))
    assert ask(model(upstream)) == [TextDelta("Yes."), End()]


@pytest.mark.parametrize("kind", [None, "application/json", "text/plain", "TEXT/Event-Stream; charset=utf-8"])
def test_a_stream_is_known_by_its_lines_whatever_its_content_type(upstream: Upstream, kind: str | None) -> None:
    whole = b": hello\n\n" + delta("Yes.") + delta(finish="stop") + DONE
    for begin in (b"", b"\xef\xbb\xbf", b"\n\n", b"event: message\n"):
        upstream.says(says(*((begin + whole)[at : at + 3] for at in range(0, len(begin + whole), 3)), kind=kind))
        assert ask(model(upstream)) == [TextDelta("Yes."), End()]


@pytest.mark.parametrize("kind", [None, "application/json", "text/plain", "text/event-stream"])
def test_a_whole_answer_in_place_of_a_stream_is_an_answer(upstream: Upstream, kind: str | None) -> None:
    body = json.dumps({
        "object": "chat.completion", "usage": {"prompt_tokens": 7, "completion_tokens": 2},
        "choices": [{"finish_reason": "length", "message": {"content": "Yes.", "reasoning_content": "Hm."}}],
    }, indent=1).encode()
    upstream.says(says(body[:9], body[9:], kind=kind))
    assert ask(model(upstream)) == [ReasoningDelta("Hm."), TextDelta("Yes."), End(FinishReason.LENGTH, Usage(7, 2))]


def split(text: str, size: int) -> list[bytes]:
    return [delta(text[at : at + size]) for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize(("said", "thought", "answered"), [
    ("<think>Hm.</think>Yes.", "Hm.", "Yes."),
    ("<think>\nHm.\n</think>\n\nYes.", "\nHm.\n", "Yes."),
    (" <think>b</think>\n<think>d</think>e", "bd", "e"),
    ("A <think>b</think> c <think>d</think>e", "", "A <think>b</think> c <think>d</think>e"),
    ("1 < 2 <thin and </think> is no tag", "", "1 < 2 <thin and </think> is no tag"),
    ("Yes <think", "", "Yes <think"),
    ("<think>Hm</thin", "Hm</thin", ""),
])
def test_reasoning_in_tags_is_told_from_text_however_it_is_cut(
    upstream: Upstream, size: int, said: str, thought: str, answered: str
) -> None:
    upstream.says(streams(*split(said, size), delta(finish="length"), DONE))
    events = ask(model(upstream))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == thought
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == answered
    assert events[-1] == End(FinishReason.LENGTH)


def test_passes_the_halves_of_a_surrogate_pair_on(upstream: Upstream) -> None:
    halves = (event(b'{"choices":[{"delta":{"content":"%s"}}]}' % half) for half in (rb"\ud83d", rb"\ude00"))
    upstream.says(streams(*halves, delta(finish="stop"), DONE))
    texts = [part.text for part in ask(model(upstream)) if isinstance(part, TextDelta)]
    assert texts == ["\ud83d", "\ude00"]
    assert clean_text("".join(texts)) == "😀"


# -- again, and away ----------------------------------------------------------------------------


@pytest.mark.parametrize("script", [
    refuses(429, "slow down"), refuses(500, "oops"), refuses(503, "later", Retry_After="0"), refuses(529, "busy"),
    cuts(), cuts(reset=True), streams(), streams(DONE), streams(delta(finish="stop"), DONE), says(),
    streams(delta("", role="assistant")), refuses(408, "slow"), refuses(429, "no", Retry_After="0.5"),
    refuses(429, "no", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"), refuses(503, "no", Retry_After="soon"),
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


def test_what_hangs_before_the_first_token_is_tried_again(upstream: Upstream) -> None:
    def hangs(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, delta("", role="assistant"))
        upstream.waits(handler)

    upstream.says(upstream.waits, hangs, HELLO)
    assert ask(model(upstream, first_token_timeout=0.3))[0] == TextDelta("Hel")
    assert len(upstream.requests) == 3


def test_what_hangs_behind_the_first_token_is_not_tried_again(upstream: Upstream) -> None:
    def hangs(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, delta("first"))
        upstream.waits(handler)

    upstream.says(hangs, HELLO)
    assert failure(upstream, idle_timeout=0.2).code is ErrorCode.TIMEOUT
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"Retry_After": "1.2"}, 1.2), ({"Retry_After": "-4"}, 0), ({"Retry_After": "31"}, None),
    ({"Retry_After": "nan"}, None), ({"Retry_After": formatdate(time.time() + 9_000_000)}, None), ({}, 0.3),
])
def test_waits_as_long_as_the_server_asks_unless_that_is_too_long(
    upstream: Upstream, headers: dict[str, str], seconds: float | None
) -> None:
    upstream.says(refuses(429, "slow down", **headers), HELLO)
    began = time.monotonic()
    with stamina.set_testing(False):
        if seconds is None:
            assert failure(upstream).code is ErrorCode.RATE_LIMIT
        else:
            assert ask(model(upstream))[0] == TextDelta("Hel")
            assert seconds - 0.1 <= time.monotonic() - began < seconds + 2


def test_a_date_to_try_again_at_is_obeyed(upstream: Upstream) -> None:
    upstream.says(refuses(503, "later", Retry_After=formatdate(time.time() + 2, usegmt=True)), HELLO)
    began = time.monotonic()
    with stamina.set_testing(False):
        ask(model(upstream))
    assert 0.9 < time.monotonic() - began < 4


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
