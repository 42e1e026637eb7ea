"""`chatkeep dataset`: a file's name doesn't depend on its neighbours, the counts are what became of the files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api.cli import main
from conf.settings import Settings
from db.database import open_database
from services.api_tokens import TenantService
from services.knowledge.datasets import DatasetService
from services.knowledge.documents import DocumentService
from services.principal import Principal

FILES = ("a/readme.md", "b/readme.md", "a/deep/x.md", "a/y.md")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    work = tmp_path / "work"
    for name in FILES:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(f"# {name}\n\nA pump moves {name}.")
    monkeypatch.chdir(work)
    return work


def run(store: Settings, *words: str, **environment: str) -> Result:
    done = CliRunner(env={"CHATKEEP_DATABASE_URL": store.database.url} | environment).invoke(main, ["dataset", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def add(store: Settings, *words: str) -> Any:
    return json.loads(run(store, "add", "d", *words, "--json").stdout)


def names(store: Settings) -> list[str]:
    open_database(store)
    principal = Principal(TenantService.ensure("default").id)
    return sorted(row.name for row in DocumentService.all(principal, DatasetService.get_by_name(principal, "d").id))


@pytest.mark.parametrize(("words", "kept"), [
    (["a/readme.md"], ["readme.md"]), (["a/readme.md", "a/y.md"], ["readme.md", "y.md"]),
    (["a/deep/x.md", "a/y.md"], ["x.md", "y.md"]), (["a"], ["deep/x.md", "readme.md", "y.md"]),
    (["a/"], ["deep/x.md", "readme.md", "y.md"]), (["a", "a/y.md"], ["deep/x.md", "readme.md", "y.md"]),
    (["."], sorted(FILES)), (["../work/b"], ["readme.md"]), (["a/y.md", "./a/y.md"], ["y.md"]),
])
def test_a_files_name_is_its_own_or_its_path_below_the_folder_that_is_named(
    store: Settings, words: list[str], kept: list[str]
) -> None:
    told = add(store, *words)
    assert (names(store), told["files"], told["added"]) == (kept, len(kept), len(kept))
    assert add(store, *words)["added"] == 0
    assert names(store) == kept


@pytest.mark.parametrize(("words", "both", "name"), [
    (["a/readme.md", "b/readme.md"], "a/readme.md and b/readme.md", "readme.md"), (["a", "b"], "", "readme.md"),
    (["b/readme.md", "a"], "b/readme.md and a/readme.md", "readme.md"), (["a/y.md", "c/ y.md"], "", "y.md"),
])
def test_two_files_of_one_name_are_refused_by_both_before_any_is_added(
    store: Settings, folder: Path, words: list[str], both: str, name: str
) -> None:
    (folder / "c").mkdir()
    (folder / "c" / " y.md").write_text("another")
    done = run(store, "add", "d", *words)
    assert done.exit_code == 2 and both in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert f"would both be {name!r}; name a folder above them" in done.stderr
    open_database(store)
    assert DatasetService.list(Principal(TenantService.ensure("default").id)) == ()


def test_hidden_files_and_links_that_lead_nowhere_are_left_out_of_a_folder(store: Settings, folder: Path) -> None:
    (folder / "b" / ".git").mkdir()
    (folder / "b" / ".git" / "config").write_text("x")
    (folder / "b" / ".hidden").write_text("x")
    os.symlink("nowhere", folder / "b" / "link.md")
    os.symlink("../a/y.md", folder / "b" / "z.md")
    add(store, "b", "b/.hidden")
    assert names(store) == [".hidden", "readme.md", "z.md"]


def test_a_folder_without_files_and_a_file_that_is_too_large_are_refused_before_any_is_added(
    store: Settings, folder: Path
) -> None:
    (folder / "empty").mkdir()
    assert run(store, "add", "d", "a", "empty").stderr == "Error: there is no file in empty\n"
    done = run(store, "add", "d", "a", "b", CHATKEEP_LIMITS_UPLOAD_BYTES="3")
    assert "bytes; at most 3 are allowed (CHATKEEP_LIMITS_UPLOAD_BYTES)" in done.stderr
    open_database(store)
    assert DatasetService.list(Principal(TenantService.ensure("default").id)) == ()


def test_a_file_that_cannot_be_read_is_neither_added_nor_changed(store: Settings, folder: Path) -> None:
    broken = folder / "c.pdf"
    broken.write_bytes(b"%PDF-1.7 broken")

    def counted(*words: str) -> tuple[int, int, list[str]]:
        told = add(store, *words)
        return told["added"], told["changed"], sorted(told["failed"])

    assert counted("a", "c.pdf") == (3, 0, ["c.pdf"])
    assert counted("a", "c.pdf") == (0, 0, ["c.pdf"])
    broken.write_bytes(b"%PDF-1.7 broken otherwise")
    (folder / "a" / "y.md").write_text("# Another")
    assert counted("a", "c.pdf") == (0, 1, ["c.pdf"])
    done = run(store, "add", "d", "c.pdf", "a/y.md")
    assert done.stdout.endswith("): 2 files, 0 added, 0 changed, 1 failed\n") and done.exit_code == 1
    broken.write_text("It is a text now.")
    assert counted("a", "c.pdf") == (0, 1, [])


def test_a_dataset_is_deleted_once_that_is_confirmed(store: Settings) -> None:
    dataset_id = add(store, "a")["dataset_id"]
    done = run(store, "delete", "d")
    assert (done.exit_code, done.stdout) == (0, f"d ({dataset_id}): 3 documents, 3 chunks; --yes deletes them\n")
    assert len(names(store)) == 3
    told = {"dataset_id": dataset_id, "name": "d", "documents": 3, "chunks": 3}
    assert json.loads(run(store, "delete", "d", "--json").stdout) == told | {"deleted": False}
    assert json.loads(run(store, "delete", "d", "--yes", "--json").stdout) == told | {"deleted": True}
    assert json.loads(run(store, "list", "--json").stdout) == []
    done = run(store, "delete", "d", "--yes")
    assert (done.exit_code, done.stderr) == (2, "Error: there is no dataset 'd'\n")


def test_another_tenants_dataset_is_not_there_to_delete(store: Settings) -> None:
    add(store, "a")
    open_database(store)
    TenantService.ensure("stranger")
    done = run(store, "delete", "d", "--tenant", "stranger", "--yes")
    assert (done.exit_code, done.stderr) == (2, "Error: there is no dataset 'd'\n")
    assert len(names(store)) == 3
