"""What every command of the CLI shares: its options, the database, one sentence for what an operator can mend,
progress and colour where somebody looks."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click
import structlog
from peewee import DatabaseError, InterfaceError, OperationalError, ProgrammingError
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from conf.settings import Settings, load_settings
from conf.sources import known_settings, no_setting
from db.backup import BackupError
from db.database import connection, database, open_database
from db.migrate import SchemaTaken, known, migrate, pending
from db.sqlite import sqlite_path
from services.api_tokens import DEFAULT_TENANT, TenantService, sound_tenant
from services.errors import ChatkeepError
from services.principal import Principal

tenant_option = click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Name of the tenant.")
json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")

PATIENCE = 1.0  # seconds before progress is shown
Told = Callable[[int, int | None], None]
_SECTION = "a section, which holds settings: `name: value`"
_SHAPES = {"tuple_type": "a list", "list_type": "a list", "dict_type": _SECTION, "model_type": _SECTION,
           "model_attributes_type": _SECTION}

log = structlog.get_logger()


class Refusal(click.ClickException):
    """One sentence and exit code 2."""

    exit_code = 2


def settings_of(**overrides: Any) -> Settings:
    """This process's settings. Raises Refusal that names the wrong one."""
    try:
        return load_settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        raise Refusal(_first_wrong(error)) from None


def _first_wrong(error: ValidationError) -> str:
    """One sentence about the first setting that is wrong, without what may be a secret."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error":  # a rule of ours, which says what is right
        return f"setting {name}: {first['ctx']['error']}"
    if first["type"] == "extra_forbidden":
        return no_setting(name, map(".".join, known_settings(Settings)))
    if first["type"] in _SHAPES:
        return f"setting {name}: must be {_SHAPES[first['type']]}"
    # A section may hold a key, and so may a text that stands in its place; an address may hold a password.
    may_be_secret = "api_key" in name or "://" in str(first["input"])
    shown = isinstance(first["input"], str | int | float) and not may_be_secret
    return f"setting {name}: {first['msg']}" + (f" (got {first['input']!r})" if shown else "")


def existing_database() -> Settings:
    """This process's settings, with the database that they name, open. Raises Refusal where it isn't there, or
    isn't of this release."""
    settings = settings_of()
    path = sqlite_path(settings.database.url)
    if path is not None and not path.exists():
        raise Refusal(f"there is no database at {path}; `chatkeep migrate` makes it; CHATKEEP_DATABASE_URL says where")
    open_database(settings)
    lacking = pending(settings)
    if lacking:
        raise Refusal(f"the database lacks migration {lacking[0]}; run `chatkeep migrate`")
    return settings


def existing_tenant(name: str) -> Principal:
    """The tenant of this name, on an open database that is there. Raises Refusal, NotFound."""
    existing_database()
    return Principal(TenantService.get_by_name(name).id)


def tenant_of(name: str) -> Principal:
    """The tenant of this name, made on first use, on an open and migrated database. Raises InvalidArgument."""
    sound_tenant(name)  # before there is a database
    settings = settings_of()
    open_database(settings)
    tell_new(migrate(settings))
    return Principal(TenantService.ensure(name).id)


def tell_new(applied: list[str], *, in_log: bool = False) -> None:
    """Name the database on standard error where these migrations made it: it may be another one than was meant."""
    if known()[0] not in applied:
        return
    with connection():
        place = database.obj.place
    if in_log:
        log.info("made a new database", place=place)
    else:
        say(f"made a new database: {place}", err=True)


def sentence_on_error(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what an operator can mend into one sentence; a bug keeps its traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except OSError as error:
            named = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            raise Refusal(named) from error
        except (ChatkeepError, SchemaTaken, BackupError, ValueError) as error:
            raise Refusal(str(error)) from error
        except (OperationalError, InterfaceError) as error:
            raise Refusal(f"the database is not reachable: {_first_line(error)}") from error
        except DatabaseError as error:
            if not _is_the_operators(error):
                raise
            raise Refusal(f"the database refuses: {_first_line(error)}") from error

    return wrapped


def _is_the_operators(error: DatabaseError) -> bool:
    """A missing right, or a file that is no database; everything else is a bug of ours."""
    cause = getattr(error, "orig", None)
    denied = isinstance(error, ProgrammingError) and getattr(cause, "pgcode", None) == "42501"
    return denied or type(error) is DatabaseError


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def progress(description: str) -> Iterator[Told]:
    """Called with how much is done, and how much there is where that is known; shown on standard error where it
    is a terminal, once it has taken a second."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task(description, total=None)
    late = threading.Timer(PATIENCE, shown.start)
    if sys.stderr.isatty():
        late.start()
    try:
        yield lambda done, total: shown.update(task, completed=done, total=total)
    finally:
        late.cancel()
        if late.ident is not None:
            late.join()
        if shown.live.is_started:
            shown.stop()


def say(text: str, colour: str | None = None, *, err: bool = False) -> None:
    """Print a line, coloured where a terminal shows it and NO_COLOR isn't set."""
    plain = colour is None or os.environ.get("NO_COLOR")
    click.echo(text if plain else click.style(text, fg=colour), err=err)
