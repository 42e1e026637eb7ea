"""HTML in blocks of Markdown: what a reader sees of a page, and nothing else.

lxml parses; one walk without recursion writes. Ready converters were tried: markdownify fails at 330 elements in
one another and takes 18 s for 5 MB, html-to-markdown loses what is nested deeply without a word.
"""

import re
from collections.abc import Iterator

from lxml import etree

from services.errors import Unreadable
from services.knowledge.parsing.passages import TITLE_LENGTH, Heading

DEPTH = 1_000  # elements in one another; the parser itself ends at 2,048 and drops the rest
_UNSEEN = (
    "head", "title", "script", "style", "template", "noscript", "iframe", "object", "audio", "video", "canvas",
    "datalist", "annotation", "annotation-xml",
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_CELLS = ("td", "th")
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "legend", "li",
    "main", "menu", "nav", "ol", "optgroup", "option", "p", "pre", "search", "section", "summary", "table", "tr",
    "ul", *_CELLS, *_HEADINGS,
})
_LISTS = frozenset({"ul", "ol", "menu", "dir", "dl"})
_WHOLE = _LISTS | {"blockquote"}  # one block with all that is in it
_MARKERS = {"li": ("- ", "  "), "dd": (": ", "  "), "blockquote": ("> ", "> ")}  # of the first line, of the others
_MOST_MARKERS = 8  # a line that is deeper begins like one this deep
_CODE = ("code", "kbd", "samp")
_TARGET = re.compile(r"(?:https?://|mailto:)[^\s()<>]{1,300}", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\xad\u200b\ufeff]")


def blocks_of(markup: str) -> Iterator[tuple[str, Heading | None]]:
    """A page's blocks, headings with depth and title; its title is the first one where there is no h1.

    Raises Unreadable where the page is nested too deep.
    """
    root = _parsed(markup)
    if root is None:
        return
    _check_depth(root)
    title = _words(root.findtext("head/title") or "")[:TITLE_LENGTH]
    for element in root.iter(etree.Element):
        if _is_hidden(element):
            element.tag = "template"
    etree.strip_elements(root, *_UNSEEN, with_tail=False)
    written = _Writer().written(root) if root.tag == "html" else []
    if title and not any(heading and heading[0] == 1 for _, heading in written):
        yield f"# {title}\n\n", (0, title)
    yield from written


def _parsed(markup: str) -> etree._Element | None:
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        return etree.fromstring(markup.encode(), parser)
    except etree.XMLSyntaxError as error:  # it mends everything but a lack of memory
        raise MemoryError from error


def _check_depth(root: etree._Element) -> None:
    depth = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > DEPTH:
            raise Unreadable(f"The page has more than {DEPTH:,} elements in one another; simplify it.")


def _is_hidden(element: etree._Element) -> bool:
    return (
        element.get("hidden", "until-found") != "until-found"
        or element.get("aria-hidden") == "true"
        or bool(_HIDDEN_STYLE.search(element.get("style", "")))
        or (element.tag == "dialog" and element.get("open") is None)
    )


class _Writer:
    """Writes a page's elements one after the other; what is open is on its own stacks."""

    def __init__(self) -> None:
        self._blocks: list[tuple[str, Heading | None]] = []
        self._line = _Line()
        self._whole: list[str] = []  # the lines of the list or quotation that is being written
        self._wholes = 0  # how many are open
        self._markers: list[list[str]] = []  # of the open items: for the next line, for the others
        self._numbers: list[int | None] = []  # of the next item in the open lists

    def written(self, root: etree._Element) -> list[tuple[str, Heading | None]]:
        """The blocks of a page."""
        skipped = None
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                if element is not skipped:
                    self._close(element)
                self._line.say(element.tail)
            elif self._put_at_once(element):
                skipped = element
                walk.skip_subtree()
            else:
                self._open(element)
                self._line.say(element.text)
        self._end_whole()
        return self._blocks

    def _put_at_once(self, element: etree._Element) -> bool:
        """Whether the element was one of those that are written whole, with what is in them."""
        if element.tag in _HEADINGS:
            self._put_heading(element)
        elif element.tag == "pre":
            self._put(_fenced(element))
        elif element.tag == "table" and (table := _table(element)):
            self._put(table)
        else:
            return False
        return True

    def _put_heading(self, element: etree._Element) -> None:
        self._end_whole()
        if title := _line_of(element):
            depth = int(element.tag[1])
            self._blocks.append((f"{'#' * depth} {title}\n\n", (depth, title[:TITLE_LENGTH])))

    def _open(self, element: etree._Element) -> None:
        if element.tag not in _BLOCKS:
            self._line.open(element)
            return
        self._put()
        if element.tag in _WHOLE:
            self._wholes += 1
        if element.tag in _LISTS:
            self._numbers.append(_first_number(element) if element.tag == "ol" else None)
        if element.tag in _MARKERS:
            self._markers.append(self._marker(element.tag))

    def _close(self, element: etree._Element) -> None:
        if element.tag not in _BLOCKS:
            self._line.close(element)
            return
        self._put()
        if element.tag in _MARKERS:
            self._markers.pop()
        if element.tag in _LISTS:
            self._numbers.pop()
        if element.tag in _WHOLE:
            self._wholes -= 1
            if not self._wholes:
                self._end_whole()

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


class _Line:
    """Puts together the words between two blocks: links keep their target, pictures say what they show."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._links: list[int] = []  # where the open links begin

    def say(self, text: str | None) -> None:
        if text:
            self._said.append(_SPACE.sub(" ", text))

    def open(self, element: etree._Element) -> None:
        if element.tag == "a":
            self._links.append(len(self._said))
        elif element.tag == "br":
            self._said.append("\n")
        elif element.tag == "img":
            self.say(element.get("alt"))
        elif element.tag in _CODE:
            self._said.append("`")

    def close(self, element: etree._Element) -> None:
        if element.tag == "a" and self._links:
            begin = self._links.pop()
            label, target = "".join(self._said[begin:]).strip(), element.get("href", "").strip()
            if label and label != target and _TARGET.fullmatch(target):
                self._said.insert(begin, "[")
                self._said.append(f"]({target})")
        elif element.tag in _CODE:
            self._said.append("`")

    def taken(self) -> str:
        """The words, once; what is said from now on is another line."""
        text = _SPACE.sub(" ", _INVISIBLE.sub("", "".join(self._said)).replace("\n", "\v"))
        self._said, self._links = [], []
        return re.sub(r" ?\v ?", "\n", text).strip()


def _line_of(element: etree._Element) -> str:
    """An element's words in one line."""
    line = _Line()
    for event, inner in etree.iterwalk(element, events=("start", "end")):
        if inner.tag in _BLOCKS:
            line.say(" ")
        elif event == "start":
            line.open(inner)
        else:
            line.close(inner)
        line.say(inner.text if event == "start" else inner.tail if inner is not element else None)
    return _words(line.taken())


def _words(text: str) -> str:
    return _SPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


def _fenced(pre: etree._Element) -> str:
    for newline in pre.iter("br"):
        newline.tail = "\n" + (newline.tail or "")
    code = _INVISIBLE.sub("", "".join(pre.itertext())).strip("\n")
    fence = max(["``", *re.findall("`{3,}", code)], key=len) + "`"
    return f"{fence}\n{code}\n{fence}" if code.strip() else ""


def _table(table: etree._Element) -> str:
    """A table's caption and rows; nothing where it only lays out a page."""
    if next(table.iterdescendants("table", "pre", *_HEADINGS), None) is not None:
        return ""
    rows = [[_line_of(cell).replace("|", r"\|") for cell in row.iterchildren(*_CELLS)] for row in table.iter("tr")]
    told = [row for row in rows if any(row)]
    if max(map(len, told), default=0) < 2:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in (told[0], ["---"] * len(told[0]), *told[1:])]
    return "\n".join([*(f"{_line_of(caption)}\n" for caption in table.iterchildren("caption")), *lines])


def _first_number(ordered: etree._Element) -> int:
    start = ordered.get("start", "1")
    return int(start) if re.fullmatch(r"\d{1,9}", start) else 1
