"""The `chatkeep` command: the server, and what an operator does beside it."""

import json
import sys
from dataclasses import asdict

import click

from api.cli_base import Refusal, json_option, sentence_on_error, settings_of, tenant_of, tenant_option
from api.cli_datasets import dataset
from api.cli_models import model
from api.demo import QUESTION, ensure_demo
from api.server import Server
from conf import __version__
from conf.logs import log_lost_threads, set_up_logs
from db.database import open_database
from db.migrate import migrate as run_migrations
from db.migrate import pending
from services.api_tokens import ApiTokenService
from services.dialog_service import DialogService
from services.doctor import Doctor

DEMO_TEXT = """
Page    {base}/
Token   {token}
Model   {model}

Ask from a shell:
  curl -N {base}/api/v1/chats/{chat}/completions \\
    -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\
    -d '{{"question": "{question}"}}'
"""


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Chatkeep keeps every turn of every chat, and answers over your documents."""
    set_up_logs("WARNING")  # standard output is for answers alone


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
    set_up_logs(settings.log_level, settings.secrets)
    log_lost_threads()
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
    principal = tenant_of(tenant)
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
        for row in ApiTokenService.list(tenant_of(tenant))
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
    if not ApiTokenService.revoke(tenant_of(tenant), id_or_token):
        raise Refusal("there is no such token")
    click.echo("revoked")


@main.command()
@tenant_option
@sentence_on_error
def demo(tenant: str) -> None:
    """Make a chat over the project's own documents and print how to reach it.

    \b
    Example: chatkeep demo && chatkeep serve
    """
    settings = settings_of()
    dialog, secret = ensure_demo(tenant_of(tenant))
    base = f"http://{settings.host}:{settings.port}{settings.server.base_path}"
    model = settings.model.name or "default"
    answering = f"{model} at {settings.model.base_url}" if settings.model.base_url else (
        "the built-in extractive model; set CHATKEEP_MODEL_BASE_URL, CHATKEEP_MODEL_NAME and CHATKEEP_MODEL_API_KEY "
        "for another one"
    )
    click.echo(DEMO_TEXT.format(base=base, token=secret, chat=dialog.id, model=answering, question=QUESTION))


@main.command()
@json_option
@sentence_on_error
def doctor(as_json: bool) -> None:
    """Look for anything in the database that breaks a rule; changes nothing. Exit code 1 if there is.

    \b
    Example: chatkeep doctor --json
    """
    settings = settings_of()
    open_database(settings)
    lacking = pending(settings)
    if lacking:
        raise Refusal(f"the database lacks migration {lacking[0]}; run chatkeep migrate")
    examiner = Doctor(settings.document.retention_days)
    findings = list(examiner.examine())
    told = {"examined": examiner.examined, "due": examiner.due(), "findings": [asdict(found) for found in findings]}
    if as_json:
        click.echo(json.dumps(told))
    else:
        for found in findings:
            click.echo(f"{found.check} {found.id}: {found.problem}. To mend: {found.mend}.")
        click.echo(f"{examiner.examined} sessions examined, {len(findings)} findings, {told['due']} due for pruning")
    sys.exit(1 if findings else 0)


main.add_command(model)
main.add_command(dataset)

if __name__ == "__main__":
    sys.exit(main())
