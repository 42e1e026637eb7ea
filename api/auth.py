"""Who asks: the `Authorization` header becomes a Principal, before anything else is looked at."""

from flask import g, request

from services.api_tokens import ApiTokenService
from services.errors import Unauthorized
from services.principal import Principal


def authenticate() -> None:
    """Set this request's principal. Raises Unauthorized. The scheme word may be missing, as in RAGFlow."""
    scheme, _, rest = request.headers.get("Authorization", "").strip().partition(" ")
    secret = rest.strip() if scheme.lower() == "bearer" else scheme
    if not secret:
        raise Unauthorized("no token")
    g.principal = ApiTokenService.authenticate(secret)


def principal() -> Principal:
    """The principal of this request."""
    asked: Principal = g.principal
    return asked
