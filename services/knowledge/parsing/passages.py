"""From blocks of text to passages: small enough to cite, whole enough to understand, with nothing left out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from semchunk.semchunk import chunk

LIMIT = 1200  # characters of a passage; the heading line comes on top
TITLE_LENGTH = 120  # characters of one title in a heading path
_TITLE_LINE = 200  # characters of a heading line; a longer one is treated as text

Heading = tuple[int, str]  # depth and title
Position = tuple[int, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, and the titles that it stands under: `A > B`.

    Where a document has pages: the page, from 1, and the rectangles that the piece covers, each
    [page, left, right, top, bottom] in points from the page's top left corner.
    """

    content: str
    heading: str = ""
    page: int | None = None
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading with what stands between it and the next one, as blocks that aren't torn if they fit."""

    path: tuple[str, ...]
    title_line: str
    blocks: tuple[str, ...]

    @property
    def is_bare(self) -> bool:
        return bool(self.title_line) and not any(block.strip() for block in self.blocks)


def cut(blocks: Iterable[tuple[str, Heading | None]]) -> Iterator[Passage]:
    """The passages of a document's blocks; a block that is a heading comes with its depth and title."""
    for section in _joined(_sections(blocks)):
        heading = " > ".join(title for title in section.path if title)
        first, *others = [content for _, _, content in pack(section.blocks)] or [""]
        for content in (f"{section.title_line}{first}".strip("\n"), *others):
            if content.strip():
                yield Passage(content, heading)


def pack(blocks: Sequence[str]) -> list[tuple[int, int, str]]:
    """Neighbouring blocks put together up to LIMIT; one over it is cut at the best place by itself.

    Each piece comes with where it begins and ends in the blocks' joined text; blank ones are left out.
    """
    text = "".join(blocks)
    spans: list[tuple[int, int]] = []
    room = begin = 0
    for block in blocks:
        end = begin + len(block)
        if spans and len(block) <= room:
            spans[-1] = spans[-1][0], end
            room -= len(block)
        elif len(block) <= LIMIT:
            spans.append((begin, end))
            room = LIMIT - len(block)
        else:
            spans.extend((begin + first, begin + last) for first, last in _torn(block))
            room = 0
        begin = end
    pieces = ((first, last, text[first:last].strip("\n")) for first, last in spans)
    return [piece for piece in pieces if piece[2].strip()]


def _torn(block: str) -> list[tuple[int, int]]:
    # not memoised: semchunk would keep every text it measured
    spans = chunk(block, LIMIT, len, memoize=False, offsets=True)[1]
    return cast(list[tuple[int, int]], spans)


def _sections(blocks: Iterable[tuple[str, Heading | None]]) -> Iterator[_Section]:
    path: tuple[str, ...] = ()
    depths: list[int] = []
    title_line, held = "", list[str]()
    for block, heading in blocks:
        if heading is None:
            held.append(block)
            continue
        yield _Section(path, title_line, tuple(held))
        depth, title = heading
        while depths and depths[-1] >= depth:
            depths.pop()
        path = (*path[: len(depths)], title)
        depths.append(depth)
        # a paragraph underlined by accident is a heading too: text like any other
        title_line, held = (block, []) if len(block) <= _TITLE_LINE else ("", [block])
    yield _Section(path, title_line, tuple(held))


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
