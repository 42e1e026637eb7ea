"""A server's whole life at DEBUG, with failures of every kind: no credential and nobody's words leave by the log,
an error or the metrics."""

import contextlib
import hashlib
import json
import secrets
import socket
import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg2
import pytest
import requests

from tests.processes import ServerProcess, wait_until

KEYS = {"MODEL": f"sk-{secrets.token_hex(20)}", "EMBEDDING": secrets.token_hex(20), "RERANK": 'quo"ted/key+' + "k9" * 9}
VISITORS = ("visitor-7d1f", "visitor-of-no-chat")
SAID = ("where lies the treasure", "under the old oak", "a handbook of the vault")


class EchoingModel:
    """Answers, or fails as the question says, and repeats the key that it was asked with."""

    def __init__(self) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
                key = self.headers["Authorization"].removeprefix("Bearer ")
                status, body = answer(self.path, asked, key)
                self.send_response(status)
                self.send_header("Content-Type", "text/event-stream" if status == 200 else "application/json")
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"


def answer(path: str, asked: str, key: str) -> tuple[int, bytes]:
    if not path.endswith("/chat/completions"):
        return 401, json.dumps({"detail": f"no such key: {key[:20]}..."}).encode()
    if "refuse" in asked:
        error = {"message": f"Incorrect API key provided: {key}", "got": f"Bearer {key}"}
        return 401, json.dumps({"error": error}).encode()
    told = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % SAID[1].encode()
    if "break" in asked:
        return 200, told + b"data: %s\n\n" % json.dumps({"error": f"key {key} is used up"}).encode()
    return 200, told + b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@pytest.fixture
def echo(server: ServerProcess) -> Iterator[None]:
    model = EchoingModel()
    server.environment["CHATKEEP_LOG_LEVEL"] = "DEBUG"
    for section, key in KEYS.items():
        named = {"BASE_URL": model.base_url, "NAME": section.lower(), "API_KEY": key, "RETRIES": "0"}
        server.environment |= {f"CHATKEEP_{section}_{name}": value for name, value in named.items()}
    yield
    model.server.shutdown()
    model.server.server_close()


class Life:
    """What clients do to a server; `refused` are the bodies of all that went wrong."""

    def __init__(self, server: ServerProcess) -> None:
        self.server, self.refused = server, [""]
        self.tokens = [server.token(), "chatkeep-" + secrets.token_urlsafe(32), secrets.token_urlsafe(32)]

    def __call__(self, method: str, path: str, body: Any = None, *, token: str | None = None, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {token or self.tokens[0]}"}
        reply = requests.request(method, self.server.base + path, json=body, headers=headers, timeout=20, **more)
        told = reply.json() if "json" in reply.headers["Content-Type"] else {"code": 0}
        if not reply.ok or told.get("code") or '"error"' in reply.text:
            self.refused.append(reply.text)
        return told.get("data")

    def of_tokens(self, chat: str) -> None:
        made = self("POST", "/api/v1/system/tokens", {"name": "second"})["token"]
        embed = self.server.run("token", "create", "--embed", chat, "--origin", "https://a.example", "--json")
        self.tokens += [made, json.loads(embed)["embed_token"]]
        for token in self.tokens:
            self("GET", "/api/v1/chats", token=token)
            self("GET", f"/api/v1/system/tokens/{token}/more")
            for path in ("/{}", "/v1/{}", "/v1/models/{}", "/api/v1/chats/{}/sessions", "/api/v1/runs/{}"):
                self("GET", path.format(token if token.startswith("chatkeep-") else "x"))
        for token in reversed(self.tokens[1:]):
            self("DELETE", f"/api/v1/system/tokens/{token}")
        self("GET", "/api/v1/chats", token=made)

    def of_questions(self, chat: str) -> None:
        session = self("POST", f"/api/v1/chats/{chat}/sessions", {"name": "s", "user_id": VISITORS[0]})["id"]
        self("GET", f"/api/v1/chats/{chat}/sessions?user_id={VISITORS[0]}")
        self("POST", f"/api/v1/chats/{'0' * 32}/sessions", {"name": "s", "user_id": VISITORS[1]})
        for way in ("answer", "refuse", "break"):
            for stream in (True, False):
                asked = {"question": f"{way}: {SAID[0]}?", "stream": stream}
                self("POST", f"/api/v1/chats/{chat}/completions", asked | {"session_id": session})
                said = {"model": chat, "messages": [{"role": "user", "content": asked["question"]}], "stream": stream}
                self("POST", "/v1/chat/completions", said)
            self("POST", "/api/v1/chat/recommendation", {"question": f"{way}: {SAID[0]}?"})

    def of_documents(self) -> None:
        for embedding in ("embedding", None):
            named = {"name": str(embedding)} | ({"embedding_model": embedding} if embedding else {})
            kept = self("POST", "/api/v1/datasets", named)["id"]
            where = f"/api/v1/datasets/{kept}"
            file = ("a.md", f"# Vault\n\n{SAID[2]}".encode())
            [document] = self("POST", f"{where}/documents", files={"file": file})
            self("POST", f"{where}/chunks", {"document_ids": [document["id"]]})
            wait_until(partial(self._is_parsed, f"{where}/documents"))
        self("POST", "/api/v1/retrieval", {"question": SAID[2], "dataset_ids": [kept], "rerank_id": "rerank"})

    def _is_parsed(self, where: str) -> bool:
        return self("GET", where)["docs"][0]["run"] in ("DONE", "FAIL")

    def of_broken_requests(self) -> None:
        for line in (f"GET /{self.tokens[0]} HTTP/9.9", f"GET / HTTP/1.1\r\nAuthorization Bearer {self.tokens[2]}"):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as wire:
                wire.sendall(f"{line}\r\nHost: x\r\n\r\n".encode())
                wire.recv(65_536)

    def of_bugs(self, url: str, chat: str) -> None:
        """A column that is missing, as after a migration that went wrong: the statement fails with its parameters."""
        for table, column in (("api_token", "source"), ("conversation", "user_id")):
            with renamed(url, table, column):
                self("GET", "/api/v1/chats", token=self.tokens[2])
                self("GET", f"/api/v1/chats/{chat}/sessions?user_id={VISITORS[0]}")
                self("POST", f"/api/v1/chats/{chat}/sessions", {"name": SAID[0], "user_id": VISITORS[0]})


@contextlib.contextmanager
def renamed(url: str, table: str, column: str) -> Iterator[None]:
    execute(url, f"ALTER TABLE {table} RENAME COLUMN {column} TO gone")
    try:
        yield
    finally:
        execute(url, f"ALTER TABLE {table} RENAME COLUMN gone TO {column}")


def execute(url: str, statement: str) -> None:
    is_file = url.startswith("sqlite")
    opened = sqlite3.connect(url.removeprefix("sqlite:///")) if is_file else psycopg2.connect(url)
    opened.cursor().execute(statement if is_file else f"SET search_path TO chatkeep; {statement}")
    opened.commit()
    opened.close()


def parts(secret: str) -> set[str]:
    """A secret, its digest, and its first twelve characters that aren't everyone's."""
    bare = secret.removeprefix("chatkeep-").removeprefix("embed-").removeprefix("sk-")
    return {secret, bare[:12], hashlib.sha256(secret.encode()).hexdigest(), json.dumps(bare)[1:13]}


def test_no_secret_leaves_by_the_log_an_error_or_the_metrics(server, echo, url):
    server.start()
    life = Life(server)
    chat = life("POST", "/api/v1/chats", {"name": "c"})["id"]
    life.of_questions(chat)
    life.of_documents()
    life.of_tokens(chat)
    life.of_broken_requests()
    life.of_bugs(url, chat)
    metrics = requests.get(f"{server.base}/metrics", timeout=10).text
    server.stop()
    told = server.log.read_text()
    lines = [json.loads(line) for line in told.splitlines()]
    hidden = {part for secret in (*life.tokens, *KEYS.values()) for part in parts(secret)} | set(VISITORS)
    places = {"log": (told, hidden | set(SAID)), "metrics": (metrics, hidden | set(SAID)),
              "errors": ("\n".join(life.refused), hidden)}
    for place, (text, unspeakable) in places.items():
        for secret in unspeakable:
            found = text.find(secret)
            assert found < 0, f"{secret!r} is in the {place}: ...{text[max(found - 300, 0):found + 100]}"

    events = {line["event"] for line in lines}
    assert {"request", "run ended", "model failed", "sql", "a document could not be parsed"} <= events
    assert {"request failed", "database trouble"} & events
    assert len(life.refused) > 30 and ("does not exist" in told or "no such column" in told)
    ended = [line for line in lines if line["event"] == "run ended"]
    assert {(line["outcome"], line["error_code"], line["deltas"]) for line in ended} == {
        ("success", None, 1), ("error", "INVALID_REQUEST", 0), ("error", "MODEL_ERROR", 1),
    }
    asked = {line["request_id"]: line for line in lines if line["event"] == "request"}
    assert all(asked[line["request_id"]]["run_id"] == line["run_id"] for line in ended)
