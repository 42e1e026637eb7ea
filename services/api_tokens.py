"""Credentials: an API token is a tenant's backend, an embed token one chat's page.

The secret is shown once; the row keeps its SHA-256 and a prefix to recognise it by.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence

from peewee import IntegrityError

from db.database import connection, transaction
from db.jsontext import clean_text
from db.models import ApiToken, Tenant, now_ms, touched
from services.errors import InvalidArgument, NotFound, Unauthorized
from services.principal import Principal, owned_by

API_PREFIX = "chatkeep-"
EMBED_PREFIX = "chatkeep-embed-"
DEFAULT_TENANT = "default"  # whose commands need no --tenant
TENANT_LENGTH = 255  # characters
_USED_EVERY = 60_000  # milliseconds between two notes of a token's last use
_DAY = 86_400_000  # milliseconds
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def sound_tenant(name: str) -> str:
    """A tenant's name as it is kept. Raises InvalidArgument."""
    name = clean_text(name)
    if not name.strip() or len(name) > TENANT_LENGTH:
        raise InvalidArgument(f"a tenant's name has 1 to {TENANT_LENGTH} characters, not all of them blank")
    return name


def sound_origin(origin: str) -> str:
    """A site as a browser names it, in small letters. Raises InvalidArgument."""
    if not _ORIGIN.fullmatch(origin.lower()):
        raise InvalidArgument(f"{origin!r} is no origin; name a site as https://shop.example.org or "
                              "https://shop.example.org:8443, without a path")
    return origin.lower()


class TenantService:
    @classmethod
    def get(cls, principal: Principal) -> Tenant:
        """The caller's own tenant."""
        with connection():
            found: Tenant = Tenant.get_by_id(principal.tenant_id)
        return found

    @classmethod
    def get_by_name(cls, name: str) -> Tenant:
        """The tenant of this name. Raises NotFound."""
        with connection():
            found: Tenant | None = Tenant.get_or_none(Tenant.name == clean_text(name))
        if found is None:
            raise NotFound(f"there is no tenant {name!r}")
        return found

    @classmethod
    def ensure(cls, name: str) -> Tenant:
        """The tenant of this name, made on first use. Raises InvalidArgument."""
        name = sound_tenant(name)
        with connection():
            try:
                with transaction():
                    found: Tenant = Tenant.get_or_none(Tenant.name == name) or Tenant.create(name=name)
            except IntegrityError:  # another process made it between the two
                found = Tenant.get(Tenant.name == name)
        return found


class ApiTokenService:
    @classmethod
    def create(
        cls, principal: Principal, name: str | None = None, *, chat_id: str | None = None,
        origins: Sequence[str] = (), days: int | None = None,
    ) -> tuple[ApiToken, str]:
        """A new token's row, and its secret: the only time that it can be seen. It expires after `days`, if any.

        Raises InvalidArgument for an origin that is none.
        """
        kind = EMBED_PREFIX if chat_id else API_PREFIX
        secret = kind + secrets.token_urlsafe(32)
        with connection():
            row: ApiToken = ApiToken.create(
                tenant_id=principal.tenant_id, token=digest(secret), prefix=secret[: len(kind) + 4],
                name=name, dialog_id=chat_id, source="embed" if chat_id else None,
                origins=[sound_origin(origin) for origin in origins],
                expires_time=None if days is None else now_ms() + days * _DAY,
            )
        return row, secret

    @classmethod
    def authenticate(cls, secret: str) -> Principal:
        """The tenant behind an API token. Raises Unauthorized for anything else, embed tokens too."""
        moment = now_ms()
        with connection():
            row: ApiToken | None = ApiToken.get_or_none(ApiToken.token == digest(secret))
            valid = (
                row is not None and row.source is None and row.revoked_time is None
                and (row.expires_time is None or row.expires_time > moment)
            )
            if row is None or not valid:
                raise Unauthorized("no token, or none that is valid")
            if (row.last_used_time or 0) < moment - _USED_EVERY:
                ApiToken.update(last_used_time=moment).where(ApiToken.id == row.id).execute()
        return Principal(row.tenant_id)

    @classmethod
    def list(cls, principal: Principal) -> list[ApiToken]:
        """The tenant's tokens, newest first, without secrets."""
        query = ApiToken.select().where(owned_by(principal, ApiToken), ApiToken.revoked_time.is_null())
        with connection():
            return [*query.order_by(ApiToken.create_time.desc(), ApiToken.id.desc())]

    @classmethod
    def revoke(cls, principal: Principal, id_or_secret: str) -> bool:
        """Revoke a token of the tenant, by its row's id or itself; False where there is none."""
        with connection():
            changed: int = ApiToken.update(revoked_time=now_ms(), **touched()).where(
                owned_by(principal, ApiToken), ApiToken.revoked_time.is_null(),
                (ApiToken.id == id_or_secret) | (ApiToken.token == digest(id_or_secret)),
            ).execute()
        return changed > 0
