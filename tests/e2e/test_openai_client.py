"""The unmodified openai client and a server process: nothing but a base URL and a token."""

import openai
import requests


def test_a_chat_is_listed_asked_and_streamed(server):
    token = server.token()
    headers = {"Authorization": f"Bearer {token}"}
    url = server.start().base
    requests.post(f"{url}/api/v1/chats", json={"name": "mine"}, headers=headers, timeout=10)
    with openai.OpenAI(base_url=f"{url}/v1", api_key=token) as client:
        [model] = client.models.list().data
        question = {"model": model.id, "messages": [{"role": "user", "content": "What is a slot?"}]}
        whole = client.chat.completions.create(**question)
        chunks = list(client.chat.completions.create(**question, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content != ""
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens > 0
