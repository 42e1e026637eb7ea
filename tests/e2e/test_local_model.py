"""A chat with a real small model on this machine: an answer, a stop in the middle, the model's server gone."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import requests

from tests.contracts.wire import frames
from tests.processes import ROOT, ServerProcess, free_port, wait_until

# No dice, and what was said draws the same again: the model never comes to an end by itself.
ENDLESS = {"temperature": 0, "frequency_penalty": -2, "max_tokens": 2000}


@pytest.fixture
def local_model(tmp_path):
    """The small model's process and its settings."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli", "model", "serve", "--port", str(port)], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )
    exports = [process.stdout.readline().removeprefix("export ").strip() for _ in range(3)]
    yield process, dict(line.split("=", 1) for line in exports)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_chat_is_answered_stopped_and_survives_its_models_end(local_model, tmp_path):
    process, settings = local_model
    server = ServerProcess(tmp_path, **settings, CHATKEEP_MODEL_RETRIES="0")
    api = requests.Session()
    api.headers["Authorization"] = f"Bearer {server.token()}"
    try:
        base = f"{server.start().base}/api/v1"
        chat = api.post(f"{base}/chats", json={"name": "c", "llm_setting": ENDLESS}).json()["data"]["id"]
        session = api.post(f"{base}/chats/{chat}/sessions").json()["data"]["id"]

        def ask(question, when_begun):
            body = {"session_id": session, "question": question}
            with api.post(f"{base}/chats/{chat}/completions", json=body, stream=True, timeout=120) as answer:
                text = ""
                for line in answer.iter_lines(decode_unicode=True):
                    text += f"{line}\n"
                    if when_begun and text.count('"answer":"') > 3:
                        threading.Thread(target=when_begun, args=(answer.headers["X-Chatkeep-Run"],)).start()
                        when_begun = None
            return frames(text)

        def last(answer):
            return next(frame["data"] for frame in reversed(answer) if isinstance(frame["data"], dict))

        def stop(run):
            api.post(f"{base}/runs/{run}/cancel")

        stopped = last(ask("Write a long story about a fox, a river and a mountain.", stop))
        assert stopped["finish_reason"] == "interrupted"
        gone = last(ask("Write a long story about a city, a king and a horse.", lambda run: process.kill()))
        assert gone["error_code"] in ("INVALID_RESPONSE", "NETWORK_ERROR")
        refused = last(ask("And now?", None))
        assert refused["error_code"] == "NETWORK_ERROR"
        stored = wait_until(lambda: api.get(f"{base}/chats/{chat}/sessions/{session}").json()["data"]["messages"])
        ends = [entry["finish_reason"] for entry in stored if entry["role"] == "assistant" and "finish_reason" in entry]
        assert ends[-3:] == ["interrupted", "error", "error"]
        assert all("**ERROR**" not in (entry["content"] or "") for entry in stored)
    finally:
        server.stop()
