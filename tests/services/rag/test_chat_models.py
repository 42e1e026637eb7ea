"""The adapter for OpenAI-compatible servers, against a real HTTP server whose answers each test writes."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import stamina

from conf.settings import ModelSettings
from db.jsontext import clean_text
from services.errors import ModelFailure
from services.events import End, ErrorCode, Event, FinishReason, ReasoningDelta, TextDelta, Usage
from services.rag.chat_models import ModelRequest, OpenAIChatModel

KEY = "sk-secret-0123456789"
Script = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what these tests are about."""


class Upstream:
    """A model server. It answers its requests by the scripts in turn, the last one again and again."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.peers: list[Any] = []
        self.left = threading.Event()
        self.released = threading.Event()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                upstream.requests.append(json.loads(body))
                upstream.keys.append(self.headers["Authorization"])
                upstream.peers.append(self.client_address)
                script = upstream.scripts[min(len(upstream.requests), len(upstream.scripts)) - 1]
                try:
                    script(self)
                except OSError:
                    self.close_connection = True
                    upstream.left.set()

            def log_message(self, format: str, *args: Any) -> None:
                """The test's output is its own."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def says(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    def waits(self, handler: BaseHTTPRequestHandler) -> None:
        """Silence until the test is over."""
        self.released.wait(20)
        handler.close_connection = True


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    upstream = Upstream()
    upstream.thread.start()
    with stamina.set_testing(True, attempts=10, cap=True):
        yield upstream
    upstream.released.set()
    upstream.server.shutdown()
    upstream.server.server_close()
    upstream.thread.join()


def model(upstream: Upstream | str, **settings: Any) -> OpenAIChatModel:
    url = upstream if isinstance(upstream, str) else upstream.url
    return OpenAIChatModel(ModelSettings(base_url=url, api_key=KEY, name="tiny", **settings))


def ask(chat_model: OpenAIChatModel, **parameters: float) -> list[Event]:
    messages = [{"role": "user", "content": "Why?"}]
    return list(chat_model.stream(ModelRequest(messages, "Why?", parameters=parameters)))


def failure(upstream: Upstream | str, **settings: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        ask(model(upstream, **settings))
    return caught.value


def start(handler: BaseHTTPRequestHandler, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    if "Content_Length" not in headers:
        handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def send(handler: BaseHTTPRequestHandler, *parts: bytes) -> None:
    for part in parts:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.flush()


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **more: str) -> bytes:
    content = {} if text is None else {"content": text}
    return event({"choices": [{"index": 0, "delta": content | more, "finish_reason": finish}]})


def streams(*parts: bytes) -> Script:
    """A whole stream of these parts."""

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, *parts)
        handler.wfile.write(b"0\r\n\r\n")

    return script


def refuses(status: int, body: Any, kind: str = "application/json", **headers: str) -> Script:
    text = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler, status, kind, Content_Length=str(len(text)), **headers)
        handler.wfile.write(text)

    return script


def cuts(*parts: bytes, reset: bool = False) -> Script:
    """A stream whose connection breaks behind these parts."""

    def script(handler: BaseHTTPRequestHandler) -> None:
        start(handler)
        send(handler, *parts)
        if reset:
            time.sleep(0.05)  # a reset overtakes what the reader hasn't read yet
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.rfile.close()
            handler.wfile.close()
            handler.connection.close()
        handler.close_connection = True

    return script


DONE = event(b"[DONE]")
HELLO = streams(delta("Hel"), delta("lo"), delta(finish="stop"), DONE)


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


# -- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "code"), [
    (400, ErrorCode.INVALID_REQUEST), (401, ErrorCode.INVALID_REQUEST), (402, ErrorCode.RATE_LIMIT),
    (403, ErrorCode.INVALID_REQUEST), (404, ErrorCode.INVALID_REQUEST), (422, ErrorCode.INVALID_REQUEST),
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
    "prompt is too long: 210000 tokens > 200000 maximum",
])
def test_a_prompt_that_is_too_long_is_told_apart(upstream: Upstream, message: str) -> None:
    upstream.says(refuses(400, {"error": {"message": message}}))
    assert failure(upstream).code is ErrorCode.CONTEXT_TOO_LONG
    upstream.says(streams(event({"error": {"message": message}})))
    assert failure(upstream).code is ErrorCode.CONTEXT_TOO_LONG


@pytest.mark.parametrize(("script", "code"), [
    (streams(event({"error": {"message": "boom"}})), ErrorCode.MODEL_ERROR),
    (refuses(200, {"error": {"message": "boom"}}), ErrorCode.MODEL_ERROR),
    (streams(delta("no"), delta(finish="content_filter"), DONE), ErrorCode.MODEL_ERROR),
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
])
def test_a_broken_answer_is_a_failure_with_its_code(upstream: Upstream, script: Script, code: ErrorCode) -> None:
    upstream.says(script)
    assert failure(upstream).code is code


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
    refuses(200, {"error": f"bad key {KEY}"}),
    refuses(200, f"<p>{KEY}", "text/html"),
    streams(event({"error": f"bad key {KEY}"})),
    streams(event(f'"{KEY}'.encode())),
])
def test_the_key_is_in_no_failure_and_no_traceback(upstream: Upstream, script: Script) -> None:
    upstream.says(script)
    failed = failure(upstream)
    assert KEY not in f"{failed!r} {failed.message} {failed.detail}"
    assert "***" in failed.detail
    assert failed.__cause__ is None and (failed.__context__ is None or failed.__suppress_context__)


# -- time ---------------------------------------------------------------------------------------


def timed_out(upstream: Upstream, **settings: Any) -> float:
    began = time.monotonic()
    assert failure(upstream, **settings).code is ErrorCode.TIMEOUT
    return time.monotonic() - began


def test_a_server_that_sends_no_status_is_given_up_at_the_first_token_timeout(upstream: Upstream) -> None:
    upstream.says(upstream.waits)
    assert timed_out(upstream, first_token_timeout=0.2) < 2
    assert len(upstream.requests) == 1


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
