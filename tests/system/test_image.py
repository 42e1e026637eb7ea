"""The container image's steps, taken by hand; what they leave runs, is asked, and drains."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from compose_spec import PyCompose

from tests.processes import ROOT, ModelServer, free_port, wait_until
from tests.system.image_steps import Image

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image")).build()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    model = ModelServer(["one ", "two ", "three"])
    yield model
    model.close()


def kept(image: Image) -> dict[Path, int]:
    """When each file and folder outside the volume was changed."""
    return {path: path.lstat().st_mtime_ns for path in image.root.rglob("*")
            if not path.is_relative_to(image.volume)}


def test_the_compose_file_is_of_the_compose_specification() -> None:
    text = re.sub(r"\$\{\w+(:-([^}]*)|:\?[^}]*)\}", r"\2", (ROOT / "compose.yaml").read_text("utf-8"))
    compose = PyCompose.from_yaml(text)
    compose.validate()
    compose.validate_volumes()
    assert compose.service_names() == ["chatkeep", "postgres"]


@pytest.mark.timeout(600)
def test_the_image_runs_read_only_and_lets_an_answer_end_when_it_is_stopped(image: Image, model: ModelServer) -> None:
    port = free_port()
    settings = {"CHATKEEP_HOST": "127.0.0.1", "CHATKEEP_PORT": str(port), "CHATKEEP_SERVER_BASE_PATH": "/chatkeep",
                "CHATKEEP_MODEL_BASE_URL": model.base_url, "CHATKEEP_MODEL_NAME": "slow"}
    base = f"http://127.0.0.1:{port}/chatkeep/api/v1"

    def healthy() -> bool:
        return image.start(image.health, **settings).wait(10) == 0

    before = kept(image)
    server = image.start(image.command, **settings)
    try:
        wait_until(healthy, 30)
        assert image.start(["touch", image.here("/srv/chatkeep/file")]).wait(10) != 0
        token = image.start(["chatkeep", "token", "create", "--json"], stdout=subprocess.PIPE, **settings)
        told = token.communicate(timeout=30)[0]
        headers = {"Authorization": f"Bearer {json.loads(told)['token']}"}
        chat = requests.post(f"{base}/chats", json={"name": "c"}, headers=headers, timeout=10).json()["data"]
        with requests.post(f"{base}/chats/{chat['id']}/completions", json={"question": "Count."}, headers=headers,
                           stream=True, timeout=20) as stream:
            model.allow(1)
            lines = stream.iter_lines()
            while b"one" not in next(lines):
                pass
            server.terminate()  # the first process alone, as a container engine does
            wait_until(lambda: not healthy())
            model.allow(10)
            rest = b"\n".join(lines)
        assert b"three" in rest and b'"finish_reason":"stop"' in rest
        assert server.wait(10) == 0, "within the time that `docker stop` gives"
    finally:
        server.kill()
        server.wait(10)
    assert kept(image) == before and (image.volume / "chatkeep.db").exists()
