"""A chat with a real small model on this machine: an answer, a stop in the middle, the model's server gone."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import requests

from tests.contracts.wire import frames
from tests.processes import ROOT, ServerProcess, free_port

# Without dice, and as the first question of a session, the stories below go on until the limit, half a minute away.
LONG = {"temperature": 0, "max_tokens": 2000}


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
        chat = api.post(f"{base}/chats", json={"name": "c", "llm_setting": LONG}).json()["data"]["id"]
        sessions = [api.post(f"{base}/chats/{chat}/sessions").json()["data"]["id"] for _ in range(3)]

        def ask(session, question, when_begun):
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

        stopped = last(ask(sessions[0], "Write a long story about a fox, a river and a mountain.", stop))
        assert stopped["finish_reason"] == "interrupted"
        gone = last(ask(sessions[1], "Write a long story about a river.", lambda run: process.kill()))
        assert gone["error_code"] in ("INVALID_RESPONSE", "NETWORK_ERROR")
        refused = last(ask(sessions[2], "And now?", None))
        assert refused["error_code"] == "NETWORK_ERROR"
        stored = [api.get(f"{base}/chats/{chat}/sessions/{session}").json()["data"]["messages"] for session in sessions]
        assert [messages[-1]["finish_reason"] for messages in stored] == ["interrupted", "error", "error"]
        assert all("**ERROR**" not in (entry["content"] or "") for messages in stored for entry in messages)
    finally:
        server.stop()
