"""Logs: JSON lines on standard error, and no credential in any of them.

peewee and the HTTP clients write parameters and headers at DEBUG; the filter takes tokens out of
every record, whoever wrote it.
"""

import logging
import re
import sys
from typing import Any

import structlog

_TOKEN = re.compile(r"(?i)(chatkeep-(?:embed-)?|bearer\s+|sk-)[A-Za-z0-9_\-.]{6,}")
REDACTED = r"\1[redacted]"


def redact(text: str) -> str:
    """`text` without API tokens, bearer headers and provider keys."""
    return _TOKEN.sub(REDACTED, text)


def set_up_logs(level: str) -> None:
    """Send the standard library's records and structlog's through the same formatter."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name, structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(), cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info, structlog.processors.JSONRenderer(),
        ],
    ))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """The last step before a record is written."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
