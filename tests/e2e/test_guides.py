"""The guides' commands, scripts and settings run as printed. What needs a proxy or a pooler runs in tests/system."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import yaml
from click.testing import CliRunner

from api.cli import main
from conf.settings import load_settings
from tests.databases import another_database
from tests.guides import GUIDES, blocks, check_out, exports, run_in_one_shell
from tests.processes import ROOT, ServerProcess, wait_until

OLD, NEW = "http://ragflow.example.org:9380", "http://127.0.0.1:9380"


def anchors(guide: Path) -> set[str]:
    """The names that GitHub gives a guide's headings."""
    headings = re.findall(r"^#+ (.*)$", guide.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("guide", GUIDES)
def test_every_link_leads_somewhere(guide):
    for target in re.findall(r"\]\(([^)#]*)(?:#([\w-]+))?\)", (ROOT / guide).read_text("utf-8")):
        path = (ROOT / guide).parent / target[0] if target[0] else ROOT / guide
        assert target[0].startswith("http") or path.exists(), target
        assert not target[1] or target[1] in anchors(path), target


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_can_be_read_and_every_variable_is_a_setting(guide, monkeypatch):
    for block in blocks(guide, "sh"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
        with monkeypatch.context() as patch:
            for name, value in exports(block).items():
                patch.setenv(name, value)
            load_settings()
    for name in re.findall(r"\bCHATKEEP_[A-Z_]+[A-Z]\b", (ROOT / guide).read_text("utf-8")):
        section, _, field = name.removeprefix("CHATKEEP_").lower().partition("_")
        known = type(load_settings()).model_fields
        inner = getattr(load_settings(), section, None)
        names = [field, "schema_name" if field == "schema" else field]
        assert name.removeprefix("CHATKEEP_").lower() in known or any(hasattr(inner, one) for one in names) \
            or name == "CHATKEEP_CONFIG", name


@pytest.mark.parametrize("guide", ["docs/retrieval.md", "docs/backup.md"])
def test_every_command_runs_as_printed_in_one_shell(guide, tmp_path):
    check_out(tmp_path)
    script = [block.replace("git pull", "git --version") for block in blocks(guide, "sh")]  # there is no repository
    run_in_one_shell(tmp_path, [".venv/bin/chatkeep demo", *script])
    assert not list(tmp_path.glob("*.backup")), "a backup lies in the checkout"


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_a_checkout_is_named_where_it_is(guide):
    for block in blocks(guide, "(?:sh)?"):
        bare = re.findall(r"^(?:\w+=\S+ )*(?:chatkeep|pip|python) .*$", block, re.MULTILINE)
        assert not bare, bare


def test_each_model_server_is_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("chatkeep.yaml").write_text(blocks("docs/models.md", "yaml")[0])
    for block in blocks("docs/models.md", "sh"):
        variables = exports(block) | {"BIG_MODEL_KEY": "k"}
        told = CliRunner().invoke(main, ["model", "list", "--json"], env=variables, catch_exceptions=False).stdout
        names = {value for name, value in variables.items() if name.endswith("_NAME")} | {"big"}
        assert all(json.dumps(name) in told for name in names), told


def test_the_containers_guide_names_what_compose_has():
    script = "".join(blocks("docs/docker.md", "sh"))
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    assert set(re.findall(r"compose exec (?:-T )?(\w+)", script)) == set(services)


@pytest.fixture
def old(tmp_path):
    """A server that speaks RAGFlow's API, on which the guide's first script has run, and its token."""
    (tmp_path / "old").mkdir()
    old = ServerProcess(tmp_path / "old")
    try:
        token = old.start().token("acme")
        script = blocks("docs/from-ragflow.md", "python")[0].replace(NEW, old.base).replace("<token>", token)
        for _ in range(2):  # a second time too
            done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "`{message_id, chunks, doc_aggs, citations?}`" in done.stdout
        yield old, token
    finally:
        old.stop()


def test_what_sqlite_holds_moves_to_postgresql_as_printed(tmp_path, request):
    check_out(tmp_path)
    [script] = [block for block in blocks("docs/postgresql.md", "sh") if "restore" in block]
    *commands, serve = script.splitlines()
    assert serve == ".venv/bin/chatkeep serve"
    with another_database("postgres", request, tmp_path) as url:
        commands = [re.sub("postgresql://.*", f"'{url}'", command) for command in commands]
        printed = run_in_one_shell(tmp_path, [
            ".venv/bin/chatkeep dataset add handbook LICENSE", ".venv/bin/chatkeep token create --json", *commands,
        ])
        token = re.search(r'"token": "([^"]+)"', printed)[1]
        server = ServerProcess(tmp_path, [str(tmp_path / ".venv/bin/chatkeep")], CHATKEEP_DATABASE_URL=url)
        try:
            server.start()
            headers = {"Authorization": f"Bearer {token}"}
            [dataset] = requests.get(f"{server.base}/api/v1/datasets", headers=headers, timeout=10).json()["data"]
            assert (dataset["name"], dataset["document_count"]) == ("handbook", 1)
        finally:
            server.stop()


def test_ragflows_chats_move_with_their_files_and_references(old, server):
    old, key = old
    of = {"headers": {"Authorization": f"Bearer {key}"}, "timeout": 10}
    empty = requests.post(f"{old.base}/api/v1/datasets", json={"name": "empty"}, **of).json()
    [chat] = requests.get(f"{old.base}/api/v1/chats", **of).json()["data"]["chats"]
    tuned = {"top_n": 3, "similarity_threshold": 0.25, "llm_setting": {"temperature": 0.5}, "description": "Tuned"}
    changed = requests.patch(f"{old.base}/api/v1/chats/{chat['id']}", json=tuned, **of).json()
    assert (empty["code"], changed["code"]) == (0, 0)
    token = server.token("acme")
    server.start()
    script = blocks("docs/from-ragflow.md", "python")[1].replace(OLD, old.base).replace("<key>", key)
    script = script.replace(NEW, server.base).replace("<token>", token)
    subprocess.run([sys.executable, "-c", script], cwd=server.folder, env=server.environment, check=True, timeout=60)

    def read(place, token, path):
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{place.base}/api/v1{path}", headers=headers, timeout=10).json()["data"]

    [before], [after] = (read(place, who, "/chats")["chats"] for place, who in ((old, key), (server, token)))
    kept = ("name", "prompt_config", *tuned)
    assert [after[key] for key in kept] == [before[key] for key in kept]
    assert tuned.items() <= before.items()
    there, here = (sorted(read(place, who, f"/chats/{chat['id']}/sessions"), key=lambda session: session["id"])
                   for place, who, chat in ((old, key, before), (server, token, after)))
    for was, session in zip(there, here, strict=True):
        assert [entry["content"] for entry in session["messages"]] == [entry["content"] for entry in was["messages"]]
        assert session["reference"][0]["chunks"][0]["content"] == was["reference"][0]["chunks"][0]["content"]
        assert (session["id"], session["name"]) == (was["id"], "First")
    document = f"/datasets/{after['dataset_ids'][0]}/documents"
    wait_until(lambda: read(server, token, document)["docs"][0]["run"] == "DONE")
    asked = {"question": "And a page?", "session_id": session["id"], "stream": False}
    answer = requests.post(f"{server.base}/api/v1/chats/{after['id']}/completions", json=asked, timeout=20,
                           headers={"Authorization": f"Bearer {token}"}).json()
    assert answer["code"] == 0
    [asked_in] = read(server, token, f"/chats/{after['id']}/sessions?id={session['id']}")
    assert len(asked_in["messages"]) == len(was["messages"]) + 2
    assert '"findings": []' in server.run("doctor", "--json")
