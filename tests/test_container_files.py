"""The Dockerfile and compose.yaml keep what the guide promises; no container engine is needed to see it."""

import os
import re
from pathlib import Path

import yaml

from conf.gunicorn import gunicorn_options
from conf.settings import Settings, load_settings
from tests.system.image_steps import instructions, sent_files

ROOT = Path(__file__).parent.parent
SAID = list(instructions((ROOT / "Dockerfile").read_text("utf-8")))
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]


def settings_by(environment: dict[str, str], monkeypatch, folder: Path) -> Settings:
    monkeypatch.chdir(folder)  # where no settings file is
    for name in [name for name in os.environ if name.startswith("CHATKEEP_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def image_environment() -> dict[str, str]:
    text = " ".join(rest for word, rest in SAID if word == "ENV")
    return dict(re.findall(r'(CHATKEEP_\w+)="?([^"\s]*)', text))


def test_the_image_is_small_unprivileged_and_watched():
    words = [word for word, _ in SAID]
    last = dict(SAID[len(words) - words[::-1].index("FROM"):])
    assert words.count("FROM") == 2 and "AS build" in SAID[words.index("FROM")][1]
    assert not last["USER"].startswith(("0", "root"))
    assert "/readyz" in last["HEALTHCHECK"] and "curl" not in last["HEALTHCHECK"]
    assert (last["STOPSIGNAL"], last["CMD"]) == ("SIGTERM", '["chatkeep", "serve"]')
    assert last["VOLUME"] == f"{last['WORKDIR']}/var"


def test_the_image_drains_within_the_ten_seconds_of_docker_stop(monkeypatch, tmp_path):
    server = settings_by(image_environment(), monkeypatch, tmp_path).server
    assert server.drain_delay + server.drain_timeout + 6 < 10, "gunicorn and the threads take up to six more"


def test_the_services_wait_for_the_database_and_have_time_to_drain(monkeypatch, tmp_path):
    chatkeep, postgres = SERVICES["chatkeep"], SERVICES["postgres"]
    assert chatkeep["depends_on"]["postgres"]["condition"] == "service_healthy" and postgres["healthcheck"]["test"]
    settings = settings_by({**image_environment(), **chatkeep["environment"]}, monkeypatch, tmp_path)
    assert gunicorn_options(settings)["graceful_timeout"] < int(chatkeep["stop_grace_period"].removesuffix("s"))
    assert settings.database.url == "postgresql://chatkeep@postgres/chatkeep"
    assert chatkeep["read_only"] and chatkeep["volumes"] == ["var:/srv/chatkeep/var"]


def test_no_secret_stands_in_the_files_and_none_is_sent_to_the_builder():
    secrets = {value for service in SERVICES.values() for name, value in service["environment"].items()
               if "PASS" in name or "KEY" in name}
    assert secrets and all(re.fullmatch(r"\$\{\w+:\?.+\}", value) for value in secrets)
    sent = {path.parts[0] for path in sent_files((ROOT / ".dockerignore").read_text("utf-8"))}
    assert sent == {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "setup.cfg",
                    "setup.py", "api", "conf", "db", "docs", "services"}
