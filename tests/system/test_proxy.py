"""A server behind nginx and behind Caddy, each as docs/proxy.md sets it up: TLS, a prefix, and streams that stream."""

import getpass
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.guides import blocks, exports
from tests.processes import ModelServer, ServerProcess, free_port, wait_until

pytestmark = pytest.mark.system
GUIDE = "docs/proxy.md"
PATIENCE = 20  # seconds for a word; the model gives up waiting for the test after 30


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=chat.example.org", "-addext", "subjectAltName=IP:127.0.0.1,DNS:chat.example.org",
         "-keyout", "chat.key", "-out", "chat.pem"], cwd=folder, check=True, capture_output=True,
    )
    return folder / "chat.pem", folder / "chat.key"


def nginx(server: int, port: int, certificate: tuple[Path, Path], folder: Path) -> list[str]:
    [printed] = blocks(GUIDE, "nginx")
    site = printed.replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:9380", f"127.0.0.1:{server}")
    site = site.replace("/etc/ssl/chat.pem", str(certificate[0])).replace("/etc/ssl/chat.key", str(certificate[1]))
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n"
                        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"user {getpass.getuser()};\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n"
    )
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(server: int, port: int, certificate: tuple[Path, Path], folder: Path) -> list[str]:
    [printed] = blocks(GUIDE, "caddy")
    tls = f"{{\n    tls {certificate[0]} {certificate[1]}"
    site = printed.replace("chat.example.org {", f"https://127.0.0.1:{port} {tls}").replace("9380", str(server))
    (folder / "Caddyfile").write_text(f"{{\nadmin off\nauto_https disable_redirects\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@pytest.fixture(scope="module", params=[nginx, caddy])
def site(
    request: Any, certificate: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, requests.Session, ModelServer]]:
    """The address of a server behind the proxy, a client with its token, and its model."""
    tmp_path = tmp_path_factory.mktemp("proxy")
    model = ModelServer(["one ", "two ", "three"])
    server = ServerProcess(tmp_path, CHATKEEP_MODEL_BASE_URL=model.base_url, CHATKEEP_MODEL_NAME="slow",
                           **exports(blocks(GUIDE, "sh")[0]))
    port = free_port()
    make: Callable[..., list[str]] = request.param
    with requests.Session() as client, (tmp_path / "proxy.log").open("wb") as log:
        client.verify = str(certificate[0])
        client.trust_env = False  # else a variable there wins over `verify`
        command = make(server.port, port, certificate, tmp_path)
        proxy = subprocess.Popen(command, stdout=log, stderr=log, env=server.environment | {"HOME": str(tmp_path)})
        base = f"https://127.0.0.1:{port}/chatkeep"

        def answers() -> bool:
            assert proxy.poll() is None, (tmp_path / "proxy.log").read_text()
            try:
                return client.get(f"{base}/readyz", timeout=5).status_code == 200
            except (requests.ConnectionError, requests.Timeout):
                return False

        try:
            client.headers["Authorization"] = f"Bearer {server.token()}"
            server.start(f"{server.base}/chatkeep/readyz")
            wait_until(answers)
            yield base, client, model
        finally:
            model.close()
            proxy.terminate()
            proxy.wait(20)
            server.stop()


def read_until(lines: Iterator[bytes], word: bytes) -> bytes:
    seen = b""
    while word not in seen:
        seen += next(lines) + b"\n"
    return seen


@pytest.mark.timeout(120)
def test_an_answer_comes_delta_by_delta_and_goes_on_where_the_connection_broke(site: Any) -> None:
    base, client, model = site
    chat = client.post(f"{base}/api/v1/chats", json={"name": "c"}).json()["data"]["id"]
    ask = f"{base}/api/v1/chats/{chat}/completions"
    with client.post(ask, json={"question": "Count."}, stream=True, timeout=PATIENCE) as stream:
        lines = stream.iter_lines()
        model.allow(1)  # the next word isn't said before this one was read
        seen = read_until(lines, b"one")
        model.allow(1)
        seen += read_until(lines, b"two")
    last = seen.rpartition(b"id: ")[2].split(b"\n")[0].decode()
    run = stream.headers["X-Chatkeep-Run"]
    events = f"{base}/api/v1/runs/{run}/events"
    with client.get(events, headers={"Last-Event-ID": last}, stream=True, timeout=PATIENCE) as stream:
        model.allow(1)
        rest = read_until(stream.iter_lines(), b'"data":true')
    assert b"one" not in rest and b"two" not in rest and b'"answer":"three"' in rest


def test_the_page_and_both_apis_live_below_the_prefix_alone(site: Any) -> None:
    base, client, _ = site
    assert "<title>Chatkeep" in client.get(f"{base}/").text
    assert client.get(f"{base}/v1/models").json()["object"] == "list"
    assert client.get(f"{base.removesuffix('/chatkeep')}/api/v1/chats").status_code in (200, 404)
    assert "chats" not in client.get(f"{base.removesuffix('/chatkeep')}/api/v1/chats").text


@pytest.mark.parametrize("path", ["metrics", "metrics/", "/metrics", "x/../metrics", "%6detrics"])
def test_what_the_server_counts_is_for_its_own_network_alone(site: Any, path: str) -> None:
    base, client, _ = site
    asked = requests.Request("GET", base).prepare()
    asked.url = f"{base}/{path}"  # as it stands: the client would tidy it
    refused = client.send(asked, timeout=PATIENCE)
    assert refused.status_code == 403 and "chatkeep_" not in refused.text


def test_a_large_upload_passes(site: Any) -> None:
    base, client, _ = site
    dataset = client.post(f"{base}/api/v1/datasets", json={"name": "d"}).json()["data"]["id"]
    large = [("file", ("large.txt", b"A pump moves water.\n" * 1_500_000))]
    answer = client.post(f"{base}/api/v1/datasets/{dataset}/documents", files=large, timeout=60)
    assert answer.json()["data"][0]["size"] == 30_000_000
