"""Settings of models: several by name, keys from the environment, and a wrong one stops the start by its name."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from api.cli import main
from conf.settings import load_settings

KEY = "sk-secret-0123456789"
NUMBER = 4815162342  # a key that YAML takes for a number
URL = "http://127.0.0.1:9/v1"


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, sections: dict[str, Any], **environment: str) -> str:
    """What `chatkeep serve` says to these settings; it must refuse them in one sentence, without the key."""
    monkeypatch.chdir(folder)
    (folder / "chatkeep.yaml").write_text(yaml.safe_dump(sections))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(main, ["serve"])
    assert (done.exit_code, "Traceback" in done.output) == (2, False), done.output
    assert KEY not in done.output and str(NUMBER) not in done.output
    return done.output


def named(**more: Any) -> dict[str, Any]:
    return {"name": "big", "base_url": URL, "api_key": KEY} | more


@pytest.mark.parametrize(("sections", "names"), [
    ({"models": [named(), named()]}, ["models.1.name", "'big'"]),
    ({"models": [named(name="default")]}, ["models.0.name", "'default'"]),
    ({"model": {"name": "tiny", "base_url": URL}, "models": [named(name="tiny")]}, ["models.0.name", "'tiny'"]),
    ({"models": [{"name": "big", "api_key": KEY}]}, ["models.0.base_url"]),
    ({"models": [named(base_url="")]}, ["models.0.base_url"]),
    ({"models": [{"base_url": URL, "api_key": KEY}]}, ["models.0.name"]),
    ({"models": [named(name="")]}, ["models.0.name"]),
    ({"models": [named(retries="many")]}, ["models.0.retries", "'many'"]),
    ({"models": [named(api_key=f"{KEY}\n\u00e9")]}, ["models.0.api_key"]),
    ({"models": [named(api_key=NUMBER)]}, ["models.0.api_key"]),
    ({"models": [named(api_key_env="CHATKEEP_NO_SUCH")]}, ["models.0", "CHATKEEP_NO_SUCH"]),
    ({"models": [named(modell="x")]}, ["models.0.modell"]),
    ({"models": {"big": named()}}, ["models"]),
    ({"model": {"base_url": "127.0.0.1:8080"}}, ["model.base_url"]),
    ({"model": {"base_url": "http://127.0.0.1:x"}}, ["model.base_url"]),
    ({"model": {"base_url": f"http://me:{KEY}@127.0.0.1/v1"}}, ["model.base_url"]),
    ({"model": {"base_url": f"http://{KEY}@127.0.0.1/v1"}}, ["model.base_url"]),
    ({"model": {"base_url": f"{URL}?key={KEY}"}}, ["model.base_url"]),
    ({"embedding": {"base_url": "ftp://x"}}, ["embedding.base_url"]),
    ({"embedding": {"base_url": URL}}, ["embedding.name"]),
    ({"embedding": {"timeout": "0"}}, ["embedding.timeout"]),
    ({"embedding": {"batch": "all"}}, ["embedding.batch", "'all'"]),
    ({"rerank": {"base_url": "http://"}}, ["rerank.base_url"]),
    ({"rerank": {"base_url": URL}}, ["rerank.name"]),
    ({"rerank": {"retries": -1}}, ["rerank.retries"]),
])
def test_a_wrong_setting_stops_the_start_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sections: dict[str, Any], names: list[str]
) -> None:
    said = told(monkeypatch, tmp_path, sections)
    assert all(name in said for name in names), said


@pytest.mark.parametrize("text", ["nonsense", f'[{{"name": "big", "api_key": "{KEY}"'])
def test_a_list_in_the_environment_that_is_no_json_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    assert "CHATKEEP_MODELS must be a JSON list" in told(monkeypatch, tmp_path, {}, CHATKEEP_MODELS=text)


def test_each_source_sets_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIG_KEY", KEY)
    monkeypatch.setenv("CHATKEEP_MODEL_BASE_URL", URL)
    monkeypatch.setenv("CHATKEEP_MODEL_NAME", "tiny")
    monkeypatch.setenv("CHATKEEP_RERANK_BASE_URL", URL)
    monkeypatch.setenv("CHATKEEP_RERANK_NAME", "judge")
    monkeypatch.setenv("CHATKEEP_RERANK_API_KEY_ENV", "BIG_KEY")
    (tmp_path / "chatkeep.yaml").write_text(yaml.safe_dump({
        "models": [{"name": "big", "model": "org/big-2", "base_url": URL, "api_key_env": "BIG_KEY", "retries": 0}],
        "embedding": {"base_url": URL, "name": "vectors", "batch": 8},
    }))
    settings = load_settings()
    (big,) = settings.models
    assert (settings.model.upstream, settings.model.base_url) == ("tiny", URL)
    assert (big.name, big.upstream, big.api_key.get_secret_value(), big.retries) == ("big", "org/big-2", KEY, 0)
    assert (settings.embedding.name, settings.embedding.batch) == ("vectors", 8)
    assert settings.rerank.api_key.get_secret_value() == KEY
    assert KEY not in f"{settings!r} {settings}"


def test_a_list_in_the_environment_replaces_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chatkeep.yaml").write_text(yaml.safe_dump({"models": [named()]}))
    monkeypatch.setenv("CHATKEEP_MODELS", json.dumps([named(name="other")]))
    assert [model.name for model in load_settings().models] == ["other"]


def test_the_example_file_shows_the_defaults_and_what_can_be_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    defaults = load_settings()
    example = (Path(__file__).parents[2] / "conf" / "chatkeep.example.yaml").read_text("utf-8")
    (tmp_path / "chatkeep.yaml").write_text(example)
    assert load_settings() == defaults
    (tmp_path / "chatkeep.yaml").write_text(example.replace("#: ", ""))
    monkeypatch.setenv("BIG_MODEL_KEY", KEY)
    settings = load_settings()
    assert (settings.models[0].name, settings.embedding.name, settings.rerank.name) == ("big", "bge-m3", "bge-reranker")
