"""The `chatkeep` command: the server, and what an operator does beside it."""

import json
import sys

import click

from api.cli_backup import backup, restore
from api.cli_base import json_option, progress, sentence_on_error, settings_of, tell_new, tenant_of, tenant_option
from api.cli_datasets import dataset
from api.cli_models import model
from api.cli_progress import migration_progress
from api.cli_tokens import token
from api.cli_upkeep import doctor, prune
from api.demo import QUESTION, ensure_demo
from api.server import Server, check_port
from conf import __version__
from conf.logs import log_lost_threads, set_up_logs
from conf.settings import Settings
from db.migrate import migrate as run_migrations
from services.api_tokens import DEFAULT_TENANT

DEMO_TEXT = """
Page    {page}
Token   {token}
Model   {model}

Ask from a shell:
  curl -N {page}api/v1/chats/{chat_id}/completions \\
    -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\
    -d '{{"question": "{question}"}}'
"""


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Chatkeep keeps every turn of every chat, and answers over your documents.

    Settings come from the environment, a `.env` file or chatkeep.yaml. Exit codes: 0 done; 1 something was found
    wrong, or part of the work failed; 2 refused, with one sentence that says why.

    \b
    Example: chatkeep demo && chatkeep serve
    """
    set_up_logs("WARNING")  # standard output is for answers alone


@main.command()
@click.option("--host", help="Address to listen on (CHATKEEP_HOST).")
@click.option("--port", type=int, help="Port to listen on (CHATKEEP_PORT).")
@click.option("--workers", type=int, help="Processes; on SQLite one of them writes at a time.")
@click.option("--demo", "with_demo", is_flag=True, help="Make the demo first; print how to reach it.")
@sentence_on_error
def serve(host: str | None, port: int | None, workers: int | None, with_demo: bool) -> None:
    """Migrate the database and serve.

    \b
    Examples: chatkeep serve --port 9380
              chatkeep serve --demo
              CHATKEEP_DATABASE_URL=postgresql://me@db.example.org/chats chatkeep serve --host 0.0.0.0 --workers 4
    """
    server = {} if workers is None else {"server": {"workers": workers}}
    settings = settings_of(host=host, port=port, **server)
    set_up_logs(settings.log_level, settings.secrets)
    log_lost_threads()
    check_port(settings)
    with migration_progress() as told:
        applied = run_migrations(settings, told)
    tell_new(applied, in_log=True)
    reached = _told(_demo(settings, DEFAULT_TENANT), settings) if with_demo else ""
    Server(settings, lambda: click.echo(reached, nl=False)).run()


@main.command()
@json_option
@sentence_on_error
def migrate(as_json: bool) -> None:
    """Bring the database's tables up to date; safe to run at any time, from any number of places.

    Servers of the release before may go on. Interrupted, it goes on where it was when it is run again.

    \b
    Example: chatkeep migrate
    """
    with migration_progress() as told:
        applied = run_migrations(settings_of(), told)
    tell_new(applied)
    if as_json:
        click.echo(json.dumps({"applied": applied}))
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "nothing to do")


@main.command()
@tenant_option
@json_option
@sentence_on_error
def demo(tenant: str, as_json: bool) -> None:
    """Make a chat over the project's own documents and print how to reach it.

    Its token is kept in var/demo-token, another tenant's in var/demo-token-TENANT, and printed again the next time.
    No token is ever revoked by it.

    \b
    Example: chatkeep demo && chatkeep serve
    """
    settings = settings_of()
    made = _demo(settings, tenant)
    click.echo(json.dumps(made) if as_json else _told(made, settings))


def _demo(settings: Settings, tenant: str) -> dict[str, str]:
    with progress("reading the documents"):
        dialog, secret = ensure_demo(tenant_of(tenant))
    page = f"http://{settings.host}:{settings.port}{settings.server.base_path}/"
    return {"page": page, "token": secret, "chat_id": dialog.id, "model": settings.model.name or "default"}


def _told(made: dict[str, str], settings: Settings) -> str:
    answering = f"{made['model']} at {settings.model.base_url}" if settings.model.base_url else (
        "the built-in extractive model; set CHATKEEP_MODEL_BASE_URL, CHATKEEP_MODEL_NAME and CHATKEEP_MODEL_API_KEY "
        "for another one"
    )
    return DEMO_TEXT.format(**made | {"model": answering}, question=QUESTION)


for command in (model, dataset, token, doctor, prune, backup, restore):
    main.add_command(command)

if __name__ == "__main__":
    sys.exit(main())
