"""Where settings are read: the environment, `.env`, and chatkeep.yaml or the file that CHATKEEP_CONFIG names.

Nothing that was meant as a setting is ignored: a name that no setting has, and a file that can't be read, is an error.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any, TypeGuard, get_origin

import yaml
from dotenv.parser import parse_stream
from pydantic import BaseModel
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
)

PREFIX = "CHATKEEP_"
ENV_FILE, CONFIG_FILE = Path(".env"), Path("chatkeep.yaml")
CONFIG = f"{PREFIX}CONFIG"  # the variable that names another file
# What Kubernetes sets for each service `chatkeep` or `chatkeep-...`, and Docker for a link.
_INJECTED = re.compile(r"CHATKEEP_(?:(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)"
                       r"(?:_(?:PROTO|PORT|ADDR))?)|ENV_\w+)")
_INJECTED_PORT = re.compile(r"CHATKEEP_(?:\w+_)?PORT=(?:tcp|udp|sctp)://.*|CHATKEEP_NAME=/.*")


class WrongSettings(ValueError):
    """A source of settings can't be used, or holds what is no setting; one sentence that says which."""


def sources(
    settings_cls: type[BaseSettings], overrides: PydanticBaseSettingsSource
) -> tuple[PydanticBaseSettingsSource, ...]:
    """Every source, the strongest first. Raises WrongSettings."""
    environment = EnvSettingsSource(settings_cls)
    environment.env_vars = _ours(environment.env_vars)
    dotenv = DotEnvSettingsSource(settings_cls, env_file=_env_file(), env_file_encoding="utf-8-sig")
    for variables in (environment.env_vars, dotenv.env_vars):
        _check_json(settings_cls, variables)
    path, must_be_there = _config_file({**dotenv.env_vars, **environment.env_vars})
    sections = _read_yaml(path, must_be_there=must_be_there)
    _check_sections(settings_cls, path, sections)
    return (
        overrides, environment, dotenv, InitSettingsSource(settings_cls, sections),
        KnownNames(settings_cls, "", environment.env_vars),
        KnownNames(settings_cls, f"{ENV_FILE}: ", dotenv.env_vars),
    )


def no_setting(name: str, known: Iterable[str]) -> str:
    """A sentence that says so, with the known name that was probably meant."""
    told_apart = {one.removeprefix(PREFIX): one for one in known}  # what all begin with makes none like another
    near = get_close_matches(name.removeprefix(PREFIX), told_apart, 1)
    return f"there is no setting {name}; {f'{told_apart[near[0]]}?' if near else 'docs/operation.md lists them'}"


def known_settings(settings_cls: type[BaseModel]) -> dict[tuple[str, ...], Any]:
    """Every setting's path, as `("database", "schema")`, in each spelling that its field has, with its type."""
    known: dict[tuple[str, ...], Any] = {}
    for name, field in settings_cls.model_fields.items():
        for spelled in {name, field.alias or name}:
            known[spelled,] = field.annotation
            if _is_section(field.annotation):
                known |= {(spelled, *inner): type for inner, type in known_settings(field.annotation).items()}
    return known


def _is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


class KnownNames(PydanticBaseSettingsSource):
    """Adds nothing: once the others were read, refuses a variable with our prefix that is no setting, and isn't the
    variable that an `api_key_env` names."""

    def __init__(self, settings_cls: type[BaseSettings], where: str, variables: Mapping[str, str | None]) -> None:
        super().__init__(settings_cls)
        self._where = where
        self._given = [name.upper() for name in variables if name.upper().startswith(PREFIX)]

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        known = {_variable(path) for path in known_settings(self.settings_cls)} | {CONFIG}
        keys = {str(name).upper() for name in _values(self.current_state, "api_key_env")}
        for name in self._given:
            if name not in known | keys:
                raise WrongSettings(self._where + no_setting(name, known))
        return {}


def _variable(path: tuple[str, ...]) -> str:
    return PREFIX + "_".join(path).upper()


def _values(given: Any, name: str) -> Iterator[Any]:
    """Everything that stands under this name, however deep."""
    if isinstance(given, dict):
        yield from (value for key, value in given.items() if key == name)
    inner = given.values() if isinstance(given, dict) else given if isinstance(given, list | tuple) else ()
    for value in inner:
        yield from _values(value, name)


def _ours(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """The environment without what Kubernetes and Docker put there for a service that is called as we are."""
    return {
        name: value for name, value in variables.items()
        if not _INJECTED.fullmatch(name.upper()) and not _INJECTED_PORT.fullmatch(f"{name.upper()}={value}")
    }


def _check_json(settings_cls: type[BaseSettings], variables: Mapping[str, str | None]) -> None:
    """Raises WrongSettings for a list or a section that isn't written as JSON. Its text may hold a key."""
    for path, annotation in known_settings(settings_cls).items():
        text = variables.get(_variable(path).lower())
        is_section = _is_section(annotation)
        if text is None or not (is_section or get_origin(annotation) in (list, tuple)):
            continue
        if not isinstance(_parsed(text), dict if is_section else list):
            wanted = 'object, {"name": "value", ...}' if is_section else "list, [...]"
            raise WrongSettings(f"{_variable(path)} must be a JSON {wanted}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _env_file() -> Path:
    """`.env`, whose every line can be read. Raises WrongSettings, without a word of what stands there."""
    if ENV_FILE.is_dir():
        raise WrongSettings(f"{ENV_FILE} is a folder; it must be a file of lines NAME=value")
    if not ENV_FILE.exists():
        return ENV_FILE
    for line in parse_stream(StringIO(_text(ENV_FILE, "lines NAME=value"))):
        lacks_value = line.key is not None and line.value is None and line.key.upper().startswith(PREFIX)
        if line.error or lacks_value:
            raise WrongSettings(f"line {line.original.line} of {ENV_FILE} isn't NAME=value")
    return ENV_FILE


def _config_file(variables: Mapping[str, str | None]) -> tuple[Path, bool]:
    """The settings file, and whether it has to be there."""
    named = variables.get(CONFIG.lower())
    if named is None:
        other = CONFIG_FILE.with_suffix(".yml")
        if other.exists() and not CONFIG_FILE.exists():
            raise WrongSettings(f"{other} isn't read; call it {CONFIG_FILE}, or name it in {CONFIG}")
        return CONFIG_FILE, False
    if not named.strip():
        raise WrongSettings(f"{CONFIG} is empty; it must name a file, or not be set")
    return Path(named).expanduser(), True


def _read_yaml(path: Path, *, must_be_there: bool) -> dict[str, Any]:
    """What the settings file holds, nothing where it isn't there and needn't be. Raises WrongSettings."""
    named = f"{path}, which {CONFIG} names," if must_be_there else str(path)
    if path.is_dir():
        raise WrongSettings(f"{named} is a folder; it must be a YAML file")
    if not path.exists():
        if must_be_there:
            raise WrongSettings(f"{named} isn't there")
        return {}
    try:
        given = yaml.safe_load(_text(path, "YAML"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise WrongSettings(f"{named} isn't YAML{where}") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise WrongSettings(f"{named} must hold sections and settings, `name: value`, not a {_kind(given)}")
    return given


def _kind(given: Any) -> str:
    return "list" if isinstance(given, list) else "single value"


def _text(path: Path, wanted: str) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongSettings(f"{path} isn't UTF-8 text; it must hold {wanted}") from None


def _check_sections(settings_cls: type[BaseSettings], path: Path, given: Mapping[Any, Any]) -> None:
    """Raises WrongSettings for a name in the file that no setting and no section has."""
    known = known_settings(settings_cls)
    inner = [(section, name) for section, values in given.items()
             if isinstance(values, dict) and _is_section(known.get((section,))) for name in values]
    for name in (*((name,) for name in given), *inner):
        if name not in known:
            raise WrongSettings(f"{path}: {no_setting('.'.join(map(str, name)), map('.'.join, known))}")
