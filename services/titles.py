"""A session's name, made of a question."""

import re

LENGTH = 60  # characters that a title keeps
_LEAST = 3
_COMMAND = re.compile(r"^/[\w-]+(?: |$)")


def derive_title(question: str) -> str | None:
    """The question's first line on one line of at most 60 characters, and `…` where something is cut off.

    A leading `/command` isn't part of it. None where fewer than 3 characters are left: another question may do.
    """
    line = _COMMAND.sub("", " ".join(question.split("\n", 1)[0].split()))
    if len(line) < _LEAST:
        return None
    if len(line) <= LENGTH:
        return line
    head, space, _ = line[: LENGTH + 1].rpartition(" ")
    return f"{head if space else line[:LENGTH]}…"
