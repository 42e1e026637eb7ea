"""Tokens of the caller's tenant. The secret is answered once; log and metrics never name one."""

from typing import Any, Literal

from flask import Blueprint, Response
from typing_extensions import TypedDict

from api.auth import authenticate, principal
from api.body import Name, read_object, text_field
from api.described import described
from api.responses import Times, success, times
from db.models import ApiToken
from services.api_tokens import ApiTokenService

blueprint = Blueprint("tokens", __name__, url_prefix="/api/v1/system/tokens")
blueprint.before_request(authenticate)


class NewToken(TypedDict, total=False):
    name: Name | None


class TokenRow(Times):
    """A token without its secret; `dialog_id` and `origins` bound one for an embedded page."""

    id: str
    tenant_id: str
    name: str | None
    prefix: str
    dialog_id: str | None
    source: str | None
    origins: list[str]
    last_used_time: int | None
    expires_time: int | None


class NewTokenRow(TokenRow):
    token: str
    beta: None


@blueprint.get("")
@described(list[TokenRow])
def list_tokens() -> Response:
    """The tenant's tokens, newest first, without secrets."""
    return success([_shown(row) for row in ApiTokenService.list(principal())])


@blueprint.post("")
@described(NewTokenRow, body=NewToken, example={"name": "backend"})
def create() -> Response:
    """A new token; `token` is in this answer only."""
    row, secret = ApiTokenService.create(principal(), text_field(read_object(), "name"))
    return success(_shown(row) | {"token": secret, "beta": None})


@blueprint.delete("/<id_or_secret>")
@described(Literal[True])
def revoke(id_or_secret: str) -> Response:
    """Revoke a token by its row's id or by itself; also true where there is none, as in RAGFlow."""
    ApiTokenService.revoke(principal(), id_or_secret)
    return success(True)


def _shown(row: ApiToken) -> dict[str, Any]:
    return {
        "id": row.id, "tenant_id": row.tenant_id, "name": row.name, "prefix": row.prefix,
        "dialog_id": row.dialog_id, "source": row.source, "origins": row.origins,
        "last_used_time": row.last_used_time, "expires_time": row.expires_time,
    } | times(row)
