"""`chatkeep token`: credentials, shown once and revoked by the operator."""

import json

import click

from api.cli_base import Refusal, existing_tenant, json_option, sentence_on_error, tenant_of, tenant_option
from services.api_tokens import ApiTokenService
from services.dialog_service import DialogService
from services.errors import NotOwned
from services.principal import Principal


@click.group()
def token() -> None:
    """Tokens: what a tenant's programs show to be let in.

    \b
    Example: chatkeep token create --tenant acme
    """


@token.command("create")
@tenant_option
@click.option("--name", help="What the token is for.")
@click.option("--embed", "chat_id", help="Make an embed token for this chat; no route takes one yet.")
@click.option("--origin", "origins", multiple=True, help="Site that may embed the chat later; repeatable.")
@json_option
@sentence_on_error
def create_token(
    tenant: str, name: str | None, chat_id: str | None, origins: tuple[str, ...], as_json: bool
) -> None:
    """Create a token and print it, this once. The tenant is made on first use.

    An embed token is for a page that other sites embed, which isn't there yet: no route takes one, so it opens nothing.

    \b
    Examples: chatkeep token create --tenant acme
              chatkeep token create --tenant acme --name backend --json
    """
    principal = existing_tenant(tenant) if chat_id else tenant_of(tenant)
    if chat_id:
        _check_chat(principal, chat_id)
    _, secret = ApiTokenService.create(principal, name, chat_id=chat_id, origins=origins)
    click.echo(json.dumps({"embed_token" if chat_id else "token": secret}) if as_json else secret)


def _check_chat(principal: Principal, chat_id: str) -> None:
    try:
        DialogService.get_by_id(principal, chat_id)
    except NotOwned:
        raise Refusal(f"the tenant has no chat {chat_id!r}") from None


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
        for row in ApiTokenService.list(existing_tenant(tenant))
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
    Example: chatkeep token revoke 0199... --tenant acme
    """
    if not ApiTokenService.revoke(existing_tenant(tenant), id_or_token):
        raise Refusal("there is no such token")
    click.echo("revoked")
