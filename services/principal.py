"""Who asks. `owned_by` is the only door to rows: no query without it, no principal is a TypeError."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Principal:
    """A tenant's backend (an API token), or one chat's visitor (an embed token)."""

    tenant_id: str
    chat_id: str | None = None
    user_id: str | None = None
    visitor: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tenant_id, str) or not self.tenant_id:
            raise TypeError("a principal needs a tenant id")

    @staticmethod
    def system() -> "Principal":
        """Recovery, doctor and prune see every tenant's rows. No route makes this one."""
        return _System("*")


class _System(Principal):
    __slots__ = ()


def owned_by(principal: Principal, row: Any) -> Any:
    """The peewee condition that a query on `row`'s table starts with: this principal's rows only."""
    if not isinstance(principal, Principal):
        raise TypeError(f"rows are reached through a Principal, not {type(principal).__name__}")
    if isinstance(principal, _System):
        return row.tenant_id.is_null(False)
    condition = row.tenant_id == principal.tenant_id
    if principal.chat_id is not None:
        fields = row._meta.fields
        condition &= fields.get("dialog_id", row.id) == principal.chat_id
    if principal.visitor is not None and "visitor_id" in row._meta.fields:
        condition &= row.visitor_id == principal.visitor
    return condition
