"""`chatkeep token`: credentials, shown once and revoked by the operator."""

import json
from datetime import UTC, datetime

import click

from api.cli_base import Refusal, existing_tenant, json_option, sentence_on_error, tenant_of, tenant_option
from db.models import now_ms
from services.api_tokens import ApiTokenService, sound_origin
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
@click.option("--origin", "origins", multiple=True, help="With --embed: site that may embed the chat; repeatable.")
@click.option("--days", type=click.IntRange(1, 36_500), help="Days until it expires; without it never.")
@json_option
@sentence_on_error
def create_token(
    tenant: str, name: str | None, chat_id: str | None, origins: tuple[str, ...], days: int | None, as_json: bool
) -> None:
    """Create a token and print it, this once. The tenant is made on first use.

    An embed token is for a page that other sites embed, which isn't there yet: no route takes one, so it opens nothing.
    An origin is https://HOST or https://HOST:PORT, as browsers name a site.

    \b
    Examples: chatkeep token create --tenant acme
              chatkeep token create --tenant acme --name backend --days 90 --json
    """
    if origins and chat_id is None:
        raise Refusal("--origin is for a chat's page; name the chat with --embed")
    for origin in origins:
        sound_origin(origin)  # before there is a database
    principal = tenant_of(tenant) if chat_id is None else existing_tenant(tenant)
    if chat_id is not None:
        _check_chat(principal, chat_id)
    row, secret = ApiTokenService.create(principal, name, chat_id=chat_id, origins=origins, days=days)
    told = {"embed_token" if chat_id else "token": secret, "id": row.id, "expires_time": row.expires_time}
    click.echo(json.dumps(told) if as_json else secret)


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
    rows = ApiTokenService.list(existing_tenant(tenant))
    if as_json:
        click.echo(json.dumps([
            {"id": row.id, "prefix": row.prefix, "name": row.name, "chat_id": row.dialog_id, "created": row.create_date,
             "last_used_time": row.last_used_time, "expires_time": row.expires_time} for row in rows
        ]))
        return
    for row in rows:
        parts = (row.id, f"{row.prefix}…", row.create_date, _expiry(row.expires_time), row.name)
        click.echo("  ".join(part for part in parts if part))


def _expiry(moment: int | None) -> str:
    """When a token expires, or that it has; nothing where it never does."""
    if moment is None:
        return ""
    word = "expires" if moment > now_ms() else "expired"
    return f"{word} {datetime.fromtimestamp(moment / 1000, UTC):%Y-%m-%d %H:%M} UTC"


@token.command("revoke")
@click.argument("id_or_token")
@tenant_option
@json_option
@sentence_on_error
def revoke_token(id_or_token: str, tenant: str, as_json: bool) -> None:
    """Revoke a token, by its row's id or by itself.

    \b
    Examples: chatkeep token revoke 0199... --tenant acme
              chatkeep token revoke 0199... --json
    """
    if not ApiTokenService.revoke(existing_tenant(tenant), id_or_token):
        raise Refusal("there is no such token")
    click.echo(json.dumps({"revoked": True}) if as_json else "revoked")
