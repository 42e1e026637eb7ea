"""From a text to passages: small enough to cite, whole enough to understand, with nothing left out.

Markdown is cut at its headings, other text between paragraphs; a passage keeps its text as it was written.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.token import Token
from semchunk.semchunk import chunk

LIMIT = 1200  # characters of a passage; the heading line comes on top
_TITLE_LINE = 200  # characters of a heading line; a longer one is treated as text
_TITLE_LENGTH = 120  # characters of one title in a heading path
_MARKDOWN = (".md", ".markdown", ".mdx")
_FRONT_MATTER = re.compile(r"\A---\n\w[\w-]*:.*?\n---[ \t]*(?=\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text, and the titles that it stands under: `A > B`."""

    content: str
    heading: str = ""
    page: int | None = None
    positions: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading with what stands between it and the next one, as blocks that aren't torn if they fit."""

    path: tuple[str, ...]
    title_line: str
    blocks: tuple[str, ...]

    @property
    def is_bare(self) -> bool:
        return bool(self.title_line) and not any(block.strip() for block in self.blocks)


def parse(name: str, text: str) -> list[Passage]:
    """The passages of a text in order; its name's ending says whether it is Markdown."""
    text = re.sub(r"\r\n?", "\n", text)
    if not name.lower().endswith(_MARKDOWN):
        return [Passage(content) for content in _pack(re.split(r"(?<=\n)(?=[ \t]*\n)", text))]
    return [
        Passage(content, " > ".join(title for title in section.path if title))
        for section in _joined(_sections(text)) for content in _contents(section)
    ]


def _sections(text: str) -> Iterator[_Section]:
    path: tuple[str, ...] = ()
    depths: list[int] = []
    title_line, blocks = "", list[str]()
    for block, heading in _blocks(text):
        if heading is None:
            blocks.append(block)
            continue
        yield _Section(path, title_line, tuple(blocks))
        depth, title = heading
        while depths and depths[-1] >= depth:
            depths.pop()
        path = (*path[: len(depths)], title)
        depths.append(depth)
        # a paragraph underlined by accident is a heading too: text like any other
        title_line, blocks = (block, []) if len(block) <= _TITLE_LINE else ("", [block])
    yield _Section(path, title_line, tuple(blocks))


def _blocks(text: str) -> Iterator[tuple[str, tuple[int, str] | None]]:
    """Every line of a Markdown text, in its top-level blocks, headings with depth and title.

    A block ends where the next one begins: link definitions and comments between two aren't lost.
    """
    lines = text.split("\n")
    headings: dict[int, tuple[int, str]] = {}
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
    return words[:_TITLE_LENGTH]


def _joined(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Sections, a bare title joined to the subsection that follows it: it says nothing alone."""
    title: _Section | None = None
    for found in sections:
        section = found
        if title is not None:
            lines = title.title_line + found.title_line
            if found.path[: len(title.path)] == title.path and len(lines) <= _TITLE_LINE:
                section = replace(found, title_line=lines)
            else:
                yield title
        title = section if section.is_bare else None
        if title is None:
            yield section
    if title is not None:
        yield title


def _contents(section: _Section) -> list[str]:
    """A section's passages; its heading stands before the first one."""
    first, *others = _pack(section.blocks) or [""]
    return [content for content in (f"{section.title_line}{first}".strip("\n"), *others) if content.strip()]


def _pack(blocks: Iterable[str]) -> list[str]:
    """Neighbouring blocks put together up to LIMIT; one over it is cut at the best place by itself."""
    packed: list[str] = []
    room = 0
    for block in blocks:
        if packed and len(block) <= room:
            packed[-1] += block
            room -= len(block)
        elif len(block) <= LIMIT:
            packed.append(block)
            room = LIMIT - len(block)
        else:
            packed.extend(_cut(block))
            room = 0
    return [piece.strip("\n") for piece in packed if piece.strip()]


def _cut(block: str) -> list[str]:
    # not memoised: semchunk would keep every text it measured
    return [str(piece) for piece in chunk(block, LIMIT, len, memoize=False)]


class ReaderProcesses:
    def __init__(self, most: int = 1) -> None: ...

    def read(self, name: str, content: bytes, *, seconds: float, megabytes: int) -> list[Passage]:
        return parse(name, content.decode())

    def close(self) -> None: ...
