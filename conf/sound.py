"""What the text of a setting may be, where its type alone doesn't tell. Each ValueError says what would be right."""

import re
from urllib.parse import unquote, urlsplit


def sound_schema(name: str) -> str:
    """A schema's name that PostgreSQL takes without quotes, and hasn't itself."""
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", name):
        raise ValueError(f"must be 1 to 63 of the characters a to z, 0 to 9 and _, no digit first (got {name!r})")
    if name.startswith("pg_") or name == "information_schema":
        raise ValueError(f"must be a name that PostgreSQL doesn't keep for itself, as all that begin with pg_ "
                         f"(got {name!r})")
    return name


def sound_base_path(path: str) -> str:
    """A path prefix as a proxy passes it on: clients resolve dot segments, encoded ones too, before they send it."""
    start, *parts = path.split("/")
    if start or any(not part or unquote(part) in (".", "..") for part in parts) or re.search(r"[?#\s]", path):
        raise ValueError(f"must be empty or like /chatkeep or /tools/chatkeep: no / at its end, no `.` or `..` "
                         f"between two /, no blank, ? or # (got {path!r})")
    return path


def sound_host(host: str) -> str:
    if not host.strip():
        raise ValueError("must be an address: empty means all of them; say 0.0.0.0 if that is wanted")
    return host


def is_server_address(url: str) -> bool:
    """Whether this is where an HTTP server is, without a key in it."""
    try:
        parts = urlsplit(url)
        reachable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    bare = not (parts.username or parts.password or parts.query or parts.fragment)
    return reachable and bare and url.isascii() and not any(sign.isspace() for sign in url)


def password_in(url: str) -> str:
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""
