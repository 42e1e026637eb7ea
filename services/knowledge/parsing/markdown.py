"""Markdown in blocks, for passages that are cut at headings and keep the text as it was written."""

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.knowledge.parsing.passages import TITLE_LENGTH, Heading

_FRONT_MATTER = re.compile(r"\A---\n\w[\w-]*:.*?\n---[ \t]*(?=\n|\Z)", re.DOTALL)


def blocks_of(text: str) -> Iterator[tuple[str, Heading | None]]:
    """Every line of a Markdown text, in its top-level blocks, headings with depth and title.

    A block ends where the next one begins: link definitions and comments between two aren't lost.
    """
    lines = text.split("\n")
    headings: dict[int, Heading] = {}
    starts: list[int] = [0]
    tokens = MarkdownIt("commonmark").enable("table").parse(_FRONT_MATTER.sub(_blank, text, count=1))
    for place, token in enumerate(tokens):
        if token.level or token.nesting < 0 or not token.map:
            continue
        starts.append(token.map[0])
        if token.type == "heading_open":
            headings[token.map[0]] = int(token.tag[1:]), _title(tokens[place + 1])
    starts = sorted(set(starts))
    for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield "".join(f"{line}\n" for line in lines[begin:end]), headings.get(begin)


def _blank(front_matter: re.Match[str]) -> str:
    return "\n" * front_matter[0].count("\n")


def _title(inline: Token) -> str:
    """A heading's words without their markup."""
    words = " ".join("".join(child.content or " " for child in inline.children or ()).split())
    return words[:TITLE_LENGTH]
