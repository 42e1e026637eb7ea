"""HTML in blocks of Markdown: what a reader sees of a page, and nothing else.

selectolax parses as browsers do; one walk without recursion writes. Ready converters were tried: markdownify fails
at 330 elements in one another and takes 18 s for 5 MB, html-to-markdown loses what is nested deeply without a word.
"""

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from services.knowledge.parsing.elements import (
    BLOCKS,
    DEPTH,
    HEADINGS,
    Line,
    is_seen,
    line_of,
    listing,
    too_deep,
    walk,
    words,
)
from services.knowledge.parsing.passages import TITLE_LENGTH, Heading
from services.knowledge.parsing.tables import table

_LISTS = frozenset({"ul", "ol", "menu", "dir", "dl"})
_WHOLE = _LISTS | {"blockquote"}  # one block with all that is in it
_MARKERS = {"li": ("- ", "  "), "dd": (": ", "  "), "blockquote": ("> ", "> ")}  # of the first line, of the others
_MOST_MARKERS = 8  # a line that is deeper begins like one this deep
_NOSCRIPT = re.compile(r"<(/?)noscript(?=[\s/>])", re.IGNORECASE)  # not parsed where scripts run, like noframes
_NESTING = re.compile(
    r"<(/?)(?:address|article|aside|blockquote|center|details|dialog|dir|div|dl|fieldset|figure|footer|header|main"
    r"|menu|nav|ol|section|ul)(?=[\s/>])", re.IGNORECASE
)


def blocks_of(markup: str) -> Iterator[tuple[str, Heading | None]]:
    """A page's blocks, headings with depth and title; its title is the first one where there is no h1.

    Raises Unreadable where the page is nested too deep.
    """
    _check_nesting(markup)
    parser = _parsed(_NOSCRIPT.sub(r"<\1noframes", markup))
    written = _Writer().written(parser.root) if parser.root else []
    named = parser.css_first("head > title")
    title = words(named.text())[:TITLE_LENGTH] if named else ""
    if title and not any(heading and heading[0] == 1 for _, heading in written):
        yield f"# {title}\n\n", (0, title)
    yield from written


def _parsed(markup: str) -> LexborHTMLParser:
    try:
        return LexborHTMLParser(markup)
    except SelectolaxError as error:  # it takes everything that it has memory for
        raise MemoryError from error


def _check_nesting(markup: str) -> None:
    """Parsing blocks in one another takes the square of their number: 46 s for 100,000."""
    depth = 0
    for tag in _NESTING.finditer(markup):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > 10 * DEPTH:
            raise too_deep()


class _Writer:
    """Writes a page's elements one after the other; what is open is on its own stacks."""

    def __init__(self) -> None:
        self._blocks: list[tuple[str, Heading | None]] = []
        self._line = Line()
        self._whole: list[str] = []  # the lines of the list or quotation that is being written
        self._wholes = 0  # how many are open
        self._markers: list[list[str]] = []  # of the open items: for the next line, for the others
        self._numbers: list[int | None] = []  # of the next item in the open lists

    def written(self, root: LexborNode) -> list[tuple[str, Heading | None]]:
        """The blocks of a page."""
        walk(root, self)
        self._end_whole()
        return self._blocks

    def open(self, node: LexborNode) -> bool:
        """Write a text, the begin of an element, or one that is written at once; whether to go into it."""
        tag = node.tag
        if tag not in BLOCKS:
            return self._line.open(node)
        if not is_seen(node) or self._put_at_once(node):
            return False
        self._put()
        if tag in _WHOLE:
            self._wholes += 1
        if tag in _LISTS:
            self._numbers.append(_first_number(node) if tag == "ol" else None)
        if tag in _MARKERS:
            self._markers.append(self._marker(tag))
        return True

    def close(self, node: LexborNode) -> None:
        """Write the end of an element."""
        tag = node.tag
        if tag not in BLOCKS:
            self._line.close(node)
            return
        self._put()
        if tag in _MARKERS:
            self._markers.pop()
        if tag in _LISTS:
            self._numbers.pop()
        if tag in _WHOLE:
            self._wholes -= 1
            if not self._wholes:
                self._end_whole()

    def _put_at_once(self, node: LexborNode) -> bool:
        if node.tag in HEADINGS:
            self._put_heading(node)
        elif node.tag == "pre":
            self._put(listing(node))
        elif node.tag == "table" and (rows := table(node)):
            self._put(rows)
        else:
            return False
        return True

    def _put_heading(self, node: LexborNode) -> None:
        self._end_whole()
        if title := line_of(node):
            depth = HEADINGS.index(node.tag or "") + 1
            self._blocks.append((f"{'#' * depth} {title}\n\n", (depth, title[:TITLE_LENGTH])))

    def _marker(self, tag: str) -> list[str]:
        if tag == "li" and self._numbers and (number := self._numbers[-1]) is not None:
            self._numbers[-1] = number + 1
            return [f"{number}. ", " " * len(f"{number}. ")]
        return list(_MARKERS[tag])

    def _put(self, text: str = "") -> None:
        """End the line, and write a text of several below it."""
        for block in (self._line.taken(), text):
            if not block:
                continue
            markers = self._markers[:_MOST_MARKERS]
            first, others = ("".join(marker[place] for marker in markers) for place in (0, 1))
            for marker in markers:
                marker[0] = marker[1]
            lines = f"{first}{block}\n".replace("\n", f"\n{others}", block.count("\n"))
            if self._wholes:
                self._whole.append(lines)
            else:
                self._blocks.append((f"{lines}\n", None))

    def _end_whole(self) -> None:
        self._put()
        if self._whole:
            self._blocks.append(("".join([*self._whole, "\n"]), None))
            self._whole = []


def _first_number(ordered: LexborNode) -> int:
    start = ordered.attributes.get("start") or "1"
    return int(start) if re.fullmatch(r"\d{1,9}", start) else 1
