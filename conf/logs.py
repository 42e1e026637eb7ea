"""Logs: JSON lines on standard error, and no credential in any of them.

Only our own packages are heard below WARNING: peewee logs parameters at DEBUG, the HTTP clients headers, gunicorn
paths. What is left passes one filter that knows the forms of tokens and this server's own secrets.
"""

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import structlog

OURS = ("api", "services", "db")
REDACTED = "[redacted]"
# A word's beginning, also behind an escape of JSON's.
_BEGIN = r"(?:(?<![a-z0-9])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))"
_TOKEN = re.compile(rf"(?i){_BEGIN}(chatkeep-(?:embed-)?|bearer\s+|sk-)[a-z0-9_\-.~+/=]{{6,}}")
_TELLING = 8  # characters of a secret that no other text has by chance
_TEXT = 500  # characters of an exception's text
_DATABASES = {"peewee", "psycopg2", "sqlite3"}
_VALUE = re.compile(r': ".*')


def redact(text: str) -> str:
    """`text` without API tokens, bearer headers and provider keys."""
    return _TOKEN.sub(rf"\1{REDACTED}", text)


class Secrets:
    """Takes secrets out of texts, also where only their beginning is there, or an escaped form of them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if secret}
        self._short = {secret for secret in known if len(secret) < _TELLING}
        begun = [_begun({secret, json.dumps(secret)[1:-1], quote(secret)}) for secret in sorted(known - self._short)]
        self._long = re.compile("|".join(begun)) if begun else None

    def hidden(self, text: str) -> str:
        """`text` without them."""
        return self._long.sub(REDACTED, text) if self._long else text

    def withheld(self, text: str) -> str:
        """The same for another's text, which may repeat them. A secret too short to be told from other text leaves
        nothing of one that holds it."""
        return "withheld: it may repeat the key" if any(map(text.__contains__, self._short)) else self.hidden(text)


def _begun(forms: set[str]) -> str:
    """A pattern of these forms, and of what begins as they do and goes on in their characters, but for quotes."""
    whole = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    heads = "|".join(sorted({re.escape(form[:_TELLING]) for form in forms}))
    rest = re.escape("".join(sorted(set().union(*forms) - set('"\\'))))
    return f"(?:{whole}|(?:{heads})[{rest}]*)"


def set_up_logs(level: str, secrets: Iterable[str] = ()) -> None:
    """Send the standard library's records and structlog's through the same formatter."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name, structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level, *shared, _short_causes,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(), cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(
        Secrets(secrets), foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.ExceptionRenderer(_traced), structlog.processors.JSONRenderer(),
        ],
    ))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    for name in OURS:
        logging.getLogger(name).setLevel(level)


def log_lost_threads() -> None:
    """An exception that ends a thread becomes a line of the log, not text between its lines."""
    log = structlog.get_logger(OURS[0])

    def tell(ended: threading.ExceptHookArgs) -> None:
        name = ended.thread.name if ended.thread else None
        log.critical("a thread ended by a bug", thread=name, exc_info=ended.exc_value)

    threading.excepthook = tell


class RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """The last step before a record is written."""

    def __init__(self, secrets: Secrets, **how: Any) -> None:
        super().__init__(**how)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return redact(self._secrets.hidden(super().format(record)))


def _traced(exc_info: Any) -> str:
    """A traceback whose texts are short, and without the values that a database repeats."""
    return "\n".join(
        "".join(traceback.format_tb(error.__traceback__)) + f"{type(error).__module__}.{type(error).__qualname__}: "
        + _said(error) for error in reversed([*_causes(exc_info[1])])
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _said(error: BaseException) -> str:
    text = str(error)
    if {kind.__module__.partition(".")[0] for kind in type(error).__mro__} & _DATABASES:
        text = _VALUE.sub("", text.partition("\n")[0])  # the second line holds the statement, the next a row
    return text[:_TEXT]


def _short_causes(logger: Any, method: str, event: Any) -> Any:
    """The library that tries again tells why in the words of the exception."""
    if "caused_by" in event:
        event["caused_by"] = _VALUE.sub("", event["caused_by"].partition("\\n")[0])
    return event
