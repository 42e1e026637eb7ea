"""The unmodified openai client and a server process: nothing but a base URL and a token."""

import subprocess
import sys

import openai
import pytest
import requests

from tests.guides import blocks


@pytest.fixture
def token(server):
    """A token of the tenant whose one chat is called Chatkeep; the server runs."""
    token = server.token()
    headers = {"Authorization": f"Bearer {token}"}
    requests.post(f"{server.start().base}/api/v1/chats", json={"name": "Chatkeep"}, headers=headers, timeout=10)
    return token


def test_a_chat_is_listed_asked_and_streamed(server, token):
    with openai.OpenAI(base_url=f"{server.base}/v1", api_key=token) as client:
        [model] = client.models.list().data
        question = {"model": model.id, "messages": [{"role": "user", "content": "What is a slot?"}]}
        whole = client.chat.completions.create(**question)
        chunks = list(client.chat.completions.create(**question, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content != ""
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens > 0


def test_the_guides_example_runs_as_printed(server, token):
    script = blocks("docs/openai.md", "python")[0]
    script = script.replace("http://127.0.0.1:9380", server.base).replace("<token>", token)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("['Chatkeep']\n") and len(done.stdout.splitlines()[1]) > 10
