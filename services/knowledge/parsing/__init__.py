"""Documents to passages: `read` and a `ReaderProcesses` take a file's bytes, `parse` a text that is one already."""

from services.errors import Unreadable
from services.knowledge.parsing.isolated import ReaderProcesses
from services.knowledge.parsing.passages import LIMIT, Passage
from services.knowledge.parsing.reading import parse, read

__all__ = ["LIMIT", "Passage", "ReaderProcesses", "Unreadable", "parse", "read"]
