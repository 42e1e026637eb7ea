"""kill -9 in the middle of a stream: what was asked is there, and the session goes on."""

import requests

from tests.processes import wait_until


def test_a_killed_server_leaves_a_question_an_interrupted_answer_and_a_working_session(server, slow_model):
    headers = {"Authorization": f"Bearer {server.token()}"}
    server.start()
    api = f"{server.base}/api/v1"
    chat = requests.post(f"{api}/chats", json={"name": "c"}, headers=headers, timeout=10).json()["data"]
    session = requests.post(f"{api}/chats/{chat['id']}/sessions", headers=headers, timeout=10).json()["data"]
    where = f"{api}/chats/{chat['id']}/sessions/{session['id']}"
    ask = {"question": "Count to six.", "session_id": session["id"]}
    with requests.post(f"{api}/chats/{chat['id']}/completions", json=ask, headers=headers, stream=True,
                       timeout=20) as stream:
        slow_model.allow(2)
        lines = stream.iter_lines()
        while b"two" not in next(lines):
            pass
        server.kill()

    server.start()
    stored = requests.get(where, headers=headers, timeout=10).json()["data"]
    question, answer = stored["messages"][-2:]
    assert (question["content"], answer["finish_reason"]) == ("Count to six.", "interrupted")
    assert answer["content"].startswith("one two"), "what its reader saw"
    assert [slot["message_id"] for slot in stored["reference"]] == [question["id"]]
    [run] = requests.get(f"{where}/runs", headers=headers, timeout=10).json()["data"]
    assert (run["status"], run["outcome"]) == ("interrupted", "lost")

    slow_model.allow(100)
    again = requests.post(f"{api}/chats/{chat['id']}/completions", headers=headers, timeout=20,
                          json=ask | {"question": "Again?", "stream": False}).json()
    assert again["data"]["answer"] == "one two three four five six"
    assert '"findings": []' in server.run("doctor", "--json")


def test_a_stopped_server_stores_what_was_said(server, slow_model):
    headers = {"Authorization": f"Bearer {server.token()}"}
    server.start()
    api = f"{server.base}/api/v1"
    chat = requests.post(f"{api}/chats", json={"name": "c"}, headers=headers, timeout=10).json()["data"]
    with requests.post(f"{api}/chats/{chat['id']}/completions", json={"question": "Count."}, headers=headers,
                       stream=True, timeout=20) as stream:
        slow_model.allow(2)
        lines = stream.iter_lines()
        while b"two" not in next(lines):
            pass
        server.stop()
    server.start()
    listed = f"{api}/chats/{chat['id']}/sessions"
    [session] = wait_until(lambda: requests.get(listed, headers=headers, timeout=10).json()["data"])
    assert session["messages"][-1]["content"].startswith("one two")
    assert session["messages"][-1]["finish_reason"] == "interrupted"
