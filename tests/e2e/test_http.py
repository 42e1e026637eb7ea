"""What only a socket can send: bodies in chunks, sound and broken, within the limit and beyond it."""

import contextlib
import json
import socket
from typing import Any

import pytest
import requests


def reply(server: Any, token: str, path: str, body: bytes, kind: str = "application/json") -> tuple[int, Any]:
    """The status and JSON of an answer to these bytes after the head of a chunked request."""
    head = (
        f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        f"Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    port = int(server.base.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
        wire.sendall(head.encode())
        with contextlib.suppress(ConnectionError):  # it has read enough
            wire.sendall(body)
        answered = b"".join(iter(lambda: wire.recv(65_536), b""))
    head_of_answer, _, text = answered.partition(b"\r\n\r\n")
    return int(head_of_answer.split()[1]), json.loads(text[text.index(b"{"):text.rindex(b"}") + 1])


def chunked(text: bytes, size: int = 60_000) -> bytes:
    parts = [text[at:at + size] for at in range(0, len(text), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize(("path", "limit"), [("/chats", 2_000_000), ("/chat/completions", 32_000_000)])
def test_a_body_in_chunks_is_read_whole_refused_when_broken_and_bounded(server, path, limit) -> None:
    server.start()
    token = server.token()
    whole = json.dumps({"name": "in chunks", "question": "q", "stream": False}).encode()
    assert reply(server, token, path, chunked(whole, 7))[1]["code"] == 0
    assert reply(server, token, path, b"zz\r\n")[1]["code"] == 101
    status, answered = reply(server, token, path, chunked(b" " * (limit + 1) + whole))
    assert (status, answered["code"]) == (413, 413)
    form = b"question=q&name=form&padding=" + b"x" * limit
    status, answered = reply(server, token, path, chunked(form), "application/x-www-form-urlencoded")
    assert (status, answered["code"]) == (413, 413)
    assert "Traceback" not in server.log.read_text()


def test_a_refusal_of_a_large_body_leaves_the_connection_to_the_next_request(server) -> None:
    server.start()
    token, body = server.token(), b'{"question": "%s"}' % (b"x" * 2_100_000)
    refused = [("/retrieval", token, 413), ("/retrieval", "bad", 401), ("/datasets/x/documents", token, 200),
               ("/nowhere", token, 404)]
    for path, credential, status in refused * 10:
        headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
        with requests.Session() as connection:
            for _ in range(2):
                answer = connection.post(f"{server.base}/api/v1{path}", data=body, headers=headers)
                assert answer.status_code == status
            assert connection.get(f"{server.base}/healthz").status_code == 200


def test_a_refusal_does_not_wait_for_a_body_that_never_comes(server) -> None:
    server.start()
    head = b"POST /api/v1/retrieval HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", int(server.base.rpartition(":")[2])), timeout=10) as wire:
        wire.sendall(head)
        assert b"401 UNAUTHORIZED" in wire.recv(65_536)


@pytest.mark.parametrize(("path", "kind"), [("/retrieval", "application/json"),
                                            ("/datasets/@/documents", "multipart/form-data; boundary=B")])
def test_a_client_that_falls_silent_in_its_body_is_given_up(server, path, kind) -> None:
    server.environment["CHATKEEP_SERVER_BODY_SILENCE"] = "1"
    server.start()
    token = server.token()
    headers = {"Authorization": f"Bearer {token}"}
    made = requests.post(f"{server.base}/api/v1/datasets", json={"name": "docs"}, headers=headers).json()["data"]["id"]
    head = (f"POST /api/v1{path.replace('@', made)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: 1000000\r\n\r\n--B\r\n")
    with socket.create_connection(("127.0.0.1", int(server.base.rpartition(":")[2])), timeout=10) as wire:
        wire.sendall(head.encode())
        answered = b""
        while not answered.endswith(b"}"):
            answered += wire.recv(65_536)
    assert b"could not be read" in answered
