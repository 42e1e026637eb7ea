"""The wheel, in an empty environment, run from a folder that has its own `api/` and `db.py`."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import requests

from tests.processes import ROOT, ServerProcess


@pytest.fixture(scope="module")
def chatkeep(tmp_path_factory):
    """The `chatkeep` command of a fresh environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True, timeout=300)
    venv.create(folder / "env", with_pip=True)
    [wheel] = folder.glob("chatkeep-*.whl")
    subprocess.run([folder / "env/bin/python", *pip[1:], "install", wheel], check=True, timeout=600)
    return str(folder / "env/bin/chatkeep")


@pytest.mark.timeout(900)
def test_the_wheel_answers_from_its_own_documents_beside_a_users_modules(chatkeep, tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").write_text("raise RuntimeError('a user\\'s own package')\n")
    (tmp_path / "db.py").write_text("raise RuntimeError('a user\\'s own module')\n")
    server = ServerProcess(tmp_path, [chatkeep])
    server.environment = {name: value for name, value in server.environment.items() if name != "PYTHONPATH"}
    server.run("demo")
    token = (tmp_path / "var" / "demo-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    try:
        server.start()
        api = f"{server.base}/api/v1"
        [chat] = requests.get(f"{api}/chats", headers=headers, timeout=10).json()["data"]["chats"]
        asked = {"question": "How do I connect to PostgreSQL?", "stream": False}
        answer = requests.post(f"{api}/chats/{chat['id']}/completions", json=asked, headers=headers,
                               timeout=20).json()["data"]
        assert "[ID:" in answer["answer"] and answer["reference"]["chunks"][0]["document_name"]
        assert "<title>Chatkeep" in requests.get(server.base, timeout=10).text
    finally:
        server.stop()
    assert os.stat(tmp_path / "var" / "demo-token").st_mode & 0o777 == 0o600


@pytest.mark.timeout(900)
def test_the_wheel_reads_documents_in_a_process_of_its_own(chatkeep, tmp_path):
    script = """\nfrom services.knowledge.parsing import ReaderProcesses
print(ReaderProcesses().read('x.html', b'<h1>A</h1>text'))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([Path(chatkeep).with_name("python"), "-c", script], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=60, check=True)
    assert "# A" in done.stdout
