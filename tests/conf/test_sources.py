"""Nothing that was meant as a setting is ignored: a wrong name, value, line or file stops the start with a sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli import main
from conf.settings import Settings, load_settings
from conf.sources import known_settings
from tests.processes import ROOT

KEY = "sk-secret-0123456789"
URL = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(**environment: str) -> str:
    """The one sentence of a command that would have made a database, and hasn't."""
    before = sorted(Path().iterdir())
    done = CliRunner(env=environment).invoke(main, ["migrate"])
    assert isinstance(done.exception, SystemExit) and done.exit_code == 2, (done.output, done.exception)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done.output
    assert KEY not in done.stderr and sorted(Path().iterdir()) == before
    return done.stderr.strip().removeprefix("Error: ")


def in_the_environment(name: str, value: str) -> str:
    return refused(**{name: value})


def in_the_env_file(name: str, value: str) -> str:
    Path(".env").write_text(f"{name}={value}\n")
    return refused()


WRONG_NAMES = [
    ("CHATKEEP_DATABSE_URL", "CHATKEEP_DATABASE_URL"), ("CHATKEEP_DATABASE_URI", "CHATKEEP_DATABASE_URL"),
    ("CHATKEEP_LOGLEVEL", "CHATKEEP_LOG_LEVEL"), ("CHATKEEP_MODEL_BASEURL", "CHATKEEP_MODEL_BASE_URL"),
    ("CHATKEEP_MODELS_0_NAME", "CHATKEEP_MODEL_NAME"), ("chatkeep_databse_url", "CHATKEEP_DATABASE_URL"),
    ("CHATKEEP__DATABASE_URL", "CHATKEEP_DATABASE_URL"), ("CHATKEEP_CONFG", "CHATKEEP_CONFIG"),
]


@pytest.mark.parametrize(("name", "meant"), WRONG_NAMES)
@pytest.mark.parametrize("given", [in_the_environment, in_the_env_file])
def test_a_variable_that_is_no_setting_is_refused_with_the_one_that_was_meant(
    given: Callable[[str, str], str], name: str, meant: str
) -> None:
    said = given(name, KEY)
    assert said.removeprefix(".env: ") == f"there is no setting {name.upper()}; {meant}?"
    assert said.startswith(".env: ") == (given is in_the_env_file)


def test_a_variable_that_is_like_no_setting_is_refused_too() -> None:
    assert refused(CHATKEEP_X="1") == "there is no setting CHATKEEP_X; docs/operation.md lists them"


@pytest.mark.parametrize(("text", "said"), [
    ("databse: {url: 'sqlite:///x.db'}", "there is no setting databse; database?"),
    ("database: {ulr: 'sqlite:///x.db'}", "there is no setting database.ulr; database.url?"),
    ("Database: {url: 'sqlite:///x.db'}", "there is no setting Database; database?"),
    ("9380: port", "there is no setting 9380; docs/operation.md lists them"),
    ("CHATKEEP_DATABASE_URL: 'sqlite:///x.db'", "there is no setting CHATKEEP_DATABASE_URL; "),
])
def test_a_name_in_the_file_that_is_no_setting_is_refused(text: str, said: str) -> None:
    Path("chatkeep.yaml").write_text(text)
    assert refused().startswith(f"chatkeep.yaml: {said}")


def test_a_name_within_json_or_a_list_that_is_no_setting_is_refused() -> None:
    assert refused(CHATKEEP_DATABASE='{"ulr": "x"}') == "there is no setting database.ulr; database.url?"
    Path("chatkeep.yaml").write_text(f"models: [{{name: a, base_url: '{URL}', modell: b}}]")
    assert refused().startswith("there is no setting models.0.modell; ")


def test_every_setting_has_a_variable_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = known_settings(Settings)
    assert len(paths) > 80 and {("database", "schema"), ("database", "schema_name")} <= set(paths)
    for path in paths:
        with monkeypatch.context() as patch:
            patch.setenv(f"CHATKEEP_{'_'.join(path).upper()}", "{}")
            try:
                load_settings()
            except ValueError as error:
                assert "there is no setting" not in str(error), path


def test_a_section_as_json_and_the_names_of_a_schema_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATKEEP_DATABASE", '{"url": "sqlite:///a.db", "pool_size": 3}')
    for name in ("CHATKEEP_DATABASE_SCHEMA", "CHATKEEP_DATABASE_SCHEMA_NAME"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "other")
            database = load_settings().database
            assert (database.url, database.pool_size, database.schema_name) == ("sqlite:///a.db", 3, "other")


INJECTED = {
    "CHATKEEP_SERVICE_HOST": "10.0.0.1", "CHATKEEP_SERVICE_PORT": "9380", "CHATKEEP_SERVICE_PORT_HTTP": "9380",
    "CHATKEEP_PORT": "tcp://10.0.0.1:9380", "CHATKEEP_PORT_9380_TCP": "tcp://10.0.0.1:9380",
    "CHATKEEP_PORT_9380_TCP_PROTO": "tcp", "CHATKEEP_PORT_9380_TCP_PORT": "9380",
    "CHATKEEP_PORT_9380_TCP_ADDR": "10.0.0.1", "CHATKEEP_NAME": "/web/chatkeep", "CHATKEEP_ENV_PATH": "/bin",
    # of the services chatkeep-server and chatkeep-postgresql beside it
    "CHATKEEP_SERVER_PORT": "tcp://10.0.0.2:80", "CHATKEEP_SERVER_SERVICE_HOST": "10.0.0.2",
    "CHATKEEP_POSTGRESQL_SERVICE_PORT_TCP_POSTGRESQL": "5432", "CHATKEEP_POSTGRESQL_PORT": "tcp://10.0.0.3:5432",
}


def test_what_kubernetes_and_docker_set_for_a_service_of_our_name_changes_nothing(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = load_settings()
    for name, value in INJECTED.items():
        monkeypatch.setenv(name, value)
    assert load_settings() == defaults
    Path(".env").write_text("CHATKEEP_PORT=9400\n")
    assert load_settings().port == 9400
    monkeypatch.setenv("CHATKEEP_PORT", "9500")
    assert load_settings().port == 9500


@pytest.mark.parametrize("where", ["file", "list", "environment"])
def test_the_variable_that_holds_a_key_may_be_called_as_one_likes(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("CHATKEEP_BIG_KEY", KEY)
    section = {"name": "big", "base_url": URL, "api_key_env": "CHATKEEP_BIG_KEY"}
    if where == "environment":
        monkeypatch.setenv("CHATKEEP_MODELS", json.dumps([section]))
    else:
        Path("chatkeep.yaml").write_text(json.dumps({"models": [section]} if where == "list" else {"model": section}))
    settings = load_settings()
    assert KEY in settings.secrets


@pytest.mark.parametrize("given", ["environment", ".env"])
def test_a_settings_file_that_is_named_has_to_be_there(folder: Path, given: str) -> None:
    (folder / "folder").mkdir()
    for name, said in (
        ("/no/prod.yml", "/no/prod.yml, which CHATKEEP_CONFIG names, isn't there"),
        ("folder", "folder, which CHATKEEP_CONFIG names, is a folder; it must be a YAML file"),
        ("", "CHATKEEP_CONFIG is empty; it must name a file, or not be set"),
    ):
        if given == ".env":
            assert in_the_env_file("CHATKEEP_CONFIG", name) == said
        else:
            assert in_the_environment("CHATKEEP_CONFIG", name) == said


def test_a_settings_file_that_is_named_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "chatkeep.yaml").write_text("port: 1")
    (folder / "prod.yml").write_text("\ufeffport: 2")
    assert load_settings().port == 1
    (folder / ".env").write_text("\ufeffCHATKEEP_CONFIG=prod.yml\n")
    assert load_settings().port == 2
    monkeypatch.setenv("CHATKEEP_CONFIG", "chatkeep.yaml")
    assert load_settings().port == 1


@pytest.mark.parametrize(("name", "content", "said"), [
    ("chatkeep.yaml", b"- port: 1", "chatkeep.yaml must hold sections and settings, `name: value`, not a list"),
    ("chatkeep.yaml", b"port", "chatkeep.yaml must hold sections and settings, `name: value`, not a single value"),
    ("chatkeep.yaml", b"\xff\xfe\x00", "chatkeep.yaml isn't UTF-8 text; it must hold YAML"),
    ("chatkeep.yaml", b"a: \x00", "chatkeep.yaml isn't YAML"),
    ("chatkeep.yaml", b"database:\n", "setting database: must be a section, which holds settings: `name: value`"),
    ("chatkeep.yaml", b"models: {}", "setting models: must be a list"),
    ("chatkeep.yaml", None, "chatkeep.yaml is a folder; it must be a YAML file"),
    ("chatkeep.yml", b"port: 1", "chatkeep.yml isn't read; call it chatkeep.yaml, or name it in CHATKEEP_CONFIG"),
    (".env", b"\x80\x81", ".env isn't UTF-8 text; it must hold lines NAME=value"),
    (".env", b"A=1\nexport B=2\nthis is nothing\n", "line 3 of .env isn't NAME=value"),
    (".env", b"# mine\nCHATKEEP_PORT 9400\n", "line 2 of .env isn't NAME=value"),
    (".env", b"CHATKEEP_PORT\n", "line 1 of .env isn't NAME=value"),
    (".env", None, ".env is a folder; it must be a file of lines NAME=value"),
])
def test_a_file_that_cannot_be_read_is_named_with_what_it_must_hold(
    folder: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is None:
        (folder / name).mkdir()
    else:
        (folder / name).write_bytes(content)
    assert refused() == said


def test_an_env_file_may_hold_what_is_not_ours(folder: Path) -> None:
    (folder / ".env").write_text("POSTGRES_PASSWORD=x\nPORT\n# a note\n\nexport CHATKEEP_PORT=9400\n")
    assert load_settings().port == 9400


@pytest.mark.parametrize(("name", "value", "said"), [
    ("CHATKEEP_MODELS", "abc", "CHATKEEP_MODELS must be a JSON list, [...]"),
    ("CHATKEEP_MODELS", "{}", "CHATKEEP_MODELS must be a JSON list, [...]"),
    ("CHATKEEP_MODELS", "", "CHATKEEP_MODELS must be a JSON list, [...]"),
    ("CHATKEEP_MODELS", f'[{{"api_key": "{KEY}"', "CHATKEEP_MODELS must be a JSON list, [...]"),
    ("CHATKEEP_SERVER_CORS_ORIGINS", "https://a", "CHATKEEP_SERVER_CORS_ORIGINS must be a JSON list, [...]"),
    ("CHATKEEP_MODEL", KEY, 'CHATKEEP_MODEL must be a JSON object, {"name": "value", ...}'),
    ("CHATKEEP_DATABASE", "[]", 'CHATKEEP_DATABASE must be a JSON object, {"name": "value", ...}'),
    *(("CHATKEEP_HOST", host, "setting host: must be an address") for host in ("", " ")),
    ("CHATKEEP_DATABASE_URL", "", "database.url must begin with sqlite:/// or postgresql://"),
    *(("CHATKEEP_DATABASE_SCHEMA", name, "setting database.schema: must be a name that PostgreSQL doesn't keep")
      for name in ("pg_x", "pg_catalog", "information_schema")),
    *(("CHATKEEP_DATABASE_SCHEMA", name, "setting database.schema: must be 1 to 63 of the characters a to z")
      for name in ("A", "a b", "1a", "", "a" * 64, "a\n")),
    *(("CHATKEEP_SERVER_BASE_PATH", path, "setting server.base_path: must be empty or like /chatkeep")
      for path in ("/../x", "/x/..", "/.", "/x/./y", "/%2e%2E/x", "x", "/", "/x/", "//x", "/x?y", "/x#y", "/x y")),
])
def test_a_value_that_cannot_be_is_refused_in_words(name: str, value: str, said: str) -> None:
    told = in_the_environment(name, value)
    assert told.startswith(said) and "Source" not in told and "^" not in told


@pytest.mark.parametrize("path", ["", "/chatkeep", "/tools/chat.keep", "/..x", "/x..", "/%20"])
def test_a_path_prefix_without_dot_segments_is_taken(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("CHATKEEP_SERVER_BASE_PATH", path)
    assert load_settings().server.base_path == path


@pytest.mark.parametrize("section", ["model", "embedding", "rerank"])
@pytest.mark.parametrize(("name", "value"), [("name", "tiny"), ("api_key", KEY), ("api_key_env", "BIG_KEY")])
def test_a_model_without_an_address_is_refused_with_the_missing_setting(section: str, name: str, value: str) -> None:
    said = refused(**{f"CHATKEEP_{section}_{name}".upper(): value, "BIG_KEY": KEY})
    assert f"`{section}.base_url` is missing" in said and f"CHATKEEP_{section.upper()}_BASE_URL" in said


@pytest.mark.parametrize(("file", "said"), [
    ("folder", "a folder; it must name a file, as sqlite:///var/chatkeep.db does"), ("README.md", "is not a database"),
])
def test_a_database_file_that_is_none_is_named(folder: Path, file: str, said: str) -> None:
    (folder / "folder").mkdir()
    (folder / "README.md").write_text((ROOT / "README.md").read_text("utf-8"), "utf-8")
    for words in (["migrate"], ["doctor"], ["token", "list"], ["backup", "b"], ["serve", "--port", "0"]):
        done = CliRunner(env={"CHATKEEP_DATABASE_URL": f"sqlite:///{file}"}).invoke(main, words)
        assert isinstance(done.exception, SystemExit) and done.exit_code == 2, (words, done.output, done.exception)
        assert file in done.output and said in done.output and len(done.output.splitlines()) == 1, done.output
