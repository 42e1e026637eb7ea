"""The guides as tests read them: what they print is what runs."""

import re

from tests.processes import ROOT


def blocks(guide: str, language: str) -> list[str]:
    """The texts of a guide's blocks in this language, in order."""
    text = (ROOT / guide).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def exports(script: str) -> dict[str, str]:
    """The variables that a shell block exports."""
    return dict(re.findall(r"^export (\w+)=(.*)$", script, re.MULTILINE))
