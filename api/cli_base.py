"""What every command of the CLI shares: its options, the settings, one sentence for what an operator can mend."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from peewee import OperationalError
from pydantic import ValidationError

from conf.settings import Settings, load_settings
from db.database import open_database
from db.migrate import SchemaTaken, migrate
from services.api_tokens import TenantService
from services.errors import ChatkeepError
from services.principal import Principal

tenant_option = click.option("--tenant", default="default", show_default=True, help="Name of the tenant.")
json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")


class Refusal(click.ClickException):
    """One sentence and exit code 2."""

    exit_code = 2


def settings_of(**overrides: Any) -> Settings:
    """This process's settings. Raises Refusal that names the wrong one."""
    try:
        return load_settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "value_error":  # a rule of ours, which names what it is about
            raise Refusal(f"setting {name}: {first['ctx']['error']}") from None
        shown = isinstance(first["input"], str | int | float) and "api_key" not in name  # a section may hold a key
        raise Refusal(f"setting {name}: {first['msg']}" + (f" (got {first['input']!r})" if shown else "")) from None


def tenant_of(name: str) -> Principal:
    """The tenant of this name, made on first use, on an open and migrated database."""
    settings = settings_of()
    open_database(settings)
    migrate(settings)
    return Principal(TenantService.ensure(name).id)


def sentence_on_error(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what an operator can mend into one sentence; a bug keeps its traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (ChatkeepError, SchemaTaken, ValueError, OSError) as error:
            raise Refusal(str(error)) from error
        except OperationalError as error:
            raise Refusal(f"the database is not reachable: {str(error).splitlines()[0]}") from error

    return wrapped
