"""Documents to passages: `read` and `read_isolated` take a file's bytes, `parse` a text that is one already."""

from services.errors import Unreadable
from services.knowledge.parsing.isolated import ReaderProcesses, close_readers, read_isolated
from services.knowledge.parsing.passages import LIMIT, Passage
from services.knowledge.parsing.reading import parse, read

__all__ = ["LIMIT", "Passage", "ReaderProcesses", "Unreadable", "close_readers", "parse", "read", "read_isolated"]
