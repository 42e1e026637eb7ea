"""People who ask a server one question after the other, each in a session of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import requests


class Asker(threading.Thread):
    """`acknowledged` are the turns whose end it saw, `failed` the messages of refusals."""

    def __init__(self, api: str, headers: dict[str, str], chat_id: str) -> None:
        super().__init__(daemon=True)
        self.url = f"{api}/chats/{chat_id}/completions"
        made = requests.post(f"{api}/chats/{chat_id}/sessions", json={"name": "s"}, headers=headers, timeout=10).json()
        self.session_id = made["data"]["id"]
        self.headers = headers
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with requests.Session() as session:
            while not self.stopped.is_set():
                question = f"What is {len(self.acknowledged)}? " * 20
                body = {"question": question, "session_id": self.session_id, "stream": False}
                answer = session.post(self.url, json=body, headers=self.headers, timeout=60).json()
                if answer["code"] == 0:
                    self.acknowledged.append(answer["data"]["id"])
                else:
                    self.failed.append(answer["message"])


@contextmanager
def asking(api: str, headers: dict[str, str], chat_id: str, count: int) -> Iterator[list[Asker]]:
    """So many askers, while the block runs; nobody may be refused."""
    askers = [Asker(api, headers, chat_id) for _ in range(count)]
    for asker in askers:
        asker.start()
    try:
        yield askers
    finally:
        for asker in askers:
            asker.stopped.set()
        for asker in askers:
            asker.join(60)
    assert [asker.failed for asker in askers] == [[]] * count
