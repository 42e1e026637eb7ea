"""The `chatkeep` command: the server, and what an operator does beside it."""

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from gunicorn.app.base import BaseApplication
from peewee import OperationalError
from pydantic import ValidationError

from api.app import close_app, create_app
from conf import __version__
from conf.gunicorn import gunicorn_options
from conf.settings import Settings, load_settings
from db.database import open_database
from db.migrate import SchemaTaken
from db.migrate import migrate as run_migrations
from services.api_tokens import ApiTokenService, TenantService
from services.dialog_service import DialogService
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
        raise Refusal(f"setting {name}: {first['msg']} (got {first['input']!r})") from None


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


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Chatkeep keeps every turn of every chat, and answers over your documents."""


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn around `create_app`; importing by module name would find a user's own `api/` first."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in gunicorn_options(self.settings).items():
            self.cfg.set(name, value)
        self.cfg.set("worker_exit", lambda arbiter, worker: close_app(worker.wsgi))

    def load(self) -> Any:
        return create_app(self.settings)


@main.command()
@click.option("--host", help="Address to listen on (CHATKEEP_HOST).")
@click.option("--port", type=int, help="Port to listen on (CHATKEEP_PORT).")
@click.option("--workers", type=int, help="Processes; more than one wants PostgreSQL.")
@sentence_on_error
def serve(host: str | None, port: int | None, workers: int | None) -> None:
    """Migrate the database and serve.

    \b
    Example: chatkeep serve --port 9380
    """
    server = {"server": {"workers": workers}} if workers else {}
    settings = settings_of(host=host, port=port, **server)
    open_database(settings)
    run_migrations(settings)
    Server(settings).run()


@main.command()
@json_option
@sentence_on_error
def migrate(as_json: bool) -> None:
    """Bring the database's tables up to date; safe to run at any time, from any number of places.

    \b
    Example: chatkeep migrate
    """
    applied = run_migrations(settings_of())
    if as_json:
        click.echo(json.dumps({"applied": applied}))
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "nothing to do")


@main.group()
def token() -> None:
    """Tokens: a tenant's backend, or one chat's page."""


def _tenant(name: str) -> Principal:
    settings = settings_of()
    open_database(settings)
    run_migrations(settings)
    return Principal(TenantService.ensure(name).id)


@token.command("create")
@tenant_option
@click.option("--name", help="What the token is for.")
@click.option("--embed", "chat_id", help="Make an embed token for this chat.")
@click.option("--origin", "origins", multiple=True, help="Site that may embed the chat; repeatable.")
@json_option
@sentence_on_error
def create_token(
    tenant: str, name: str | None, chat_id: str | None, origins: tuple[str, ...], as_json: bool
) -> None:
    """Create a token and print it, this once. The tenant is made on first use.

    \b
    Examples: chatkeep token create --tenant acme
              chatkeep token create --embed CHAT_ID --origin https://example.org
    """
    principal = _tenant(tenant)
    if chat_id:
        DialogService.get_by_id(principal, chat_id)
    _, secret = ApiTokenService.create(principal, name, chat_id=chat_id, origins=origins)
    click.echo(json.dumps({"embed_token" if chat_id else "token": secret}) if as_json else secret)


@token.command("list")
@tenant_option
@json_option
@sentence_on_error
def list_tokens(tenant: str, as_json: bool) -> None:
    """List a tenant's tokens, without secrets.

    \b
    Example: chatkeep token list --tenant acme
    """
    rows = [
        {"id": row.id, "prefix": row.prefix, "name": row.name, "chat_id": row.dialog_id,
         "created": row.create_date, "last_used_time": row.last_used_time}
        for row in ApiTokenService.list(_tenant(tenant))
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(f"{row['id']}  {row['prefix']}…  {row['created']}  {row['name'] or ''}")


@token.command("revoke")
@click.argument("id_or_token")
@tenant_option
@sentence_on_error
def revoke_token(id_or_token: str, tenant: str) -> None:
    """Revoke a token, by its row's id or by itself.

    \b
    Example: chatkeep token revoke 0199...
    """
    if not ApiTokenService.revoke(_tenant(tenant), id_or_token):
        raise Refusal("there is no such token")
    click.echo("revoked")


if __name__ == "__main__":
    sys.exit(main())
