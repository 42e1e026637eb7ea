"""What is due is erased while a server answers: nobody who asks notices."""

import json

import requests

from tests.e2e.asking import asking
from tests.processes import ServerProcess, wait_until

SESSIONS = 250  # some batches


def test_a_deleted_chat_is_pruned_while_questions_are_asked(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.token()}"}
    server.environment["CHATKEEP_DOCUMENT_RETENTION_DAYS"] = "0"
    server.start()
    api = requests.Session()
    api.headers.update(headers)
    base = f"{server.base}/api/v1/chats"
    alive, gone = (api.post(base, json={"name": name}).json()["data"]["id"] for name in ("alive", "gone"))
    for number in range(SESSIONS):
        assert api.post(f"{base}/{gone}/sessions", json={"name": f"{number}"}).json()["code"] == 0
    asked = {"question": "Why?", "stream": False}
    assert api.post(f"{base}/{gone}/completions", json=asked).json()["code"] == 0
    assert api.delete(base, json={"ids": [gone]}).json()["code"] == 0

    with asking(f"{server.base}/api/v1", headers, alive, 4) as askers:
        wait_until(lambda: all(asker.acknowledged for asker in askers), 60)
        before = sum(len(asker.acknowledged) for asker in askers)
        told = json.loads(server.run("prune", "--yes", "--json"))
        wait_until(lambda: sum(len(asker.acknowledged) for asker in askers) > before, 60)
    assert told == {"sessions": SESSIONS + 1, "chats": 1, "tokens": 0, "erased": True}
    examined = json.loads(server.run("doctor", "--json"))
    assert (examined["findings"], examined["examined"], examined["due"]) == ([], 4, 0)
    for asker in askers:
        stored = api.get(f"{base}/{alive}/sessions/{asker.session_id}").json()["data"]
        assert {entry.get("id") for entry in stored["messages"]} >= set(asker.acknowledged)
