"""The elements of a page as browsers see them: which are shown, and what one says as a line or code."""

import re
from collections.abc import Iterator
from typing import Protocol

from selectolax.lexbor import LexborNode

from services.errors import Unreadable

DEPTH = 1_000  # elements in one another
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
AT_ONCE = frozenset({"table", "pre", *HEADINGS})  # written as one, with what is in them
BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "html", "legend", "li",
    "main", "menu", "nav", "ol", "optgroup", "option", "p", "search", "section", "summary", "td", "th", "tr", "ul",
}) | AT_ONCE
_UNSEEN = frozenset({
    "head", "title", "script", "style", "template", "noframes", "noembed", "iframe", "object", "audio", "video",
    "canvas", "datalist", "annotation", "annotation-xml",
})
_HIDING = {
    "display": ("none",), "visibility": ("hidden", "collapse"), "content-visibility": ("hidden",),
}
_OPAQUE = re.compile(  # in a style: a comment, or what may hold a `;` that ends no declaration
    r"""(?P<comment>/\*.*?(?:\*/|\Z))|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|[(\[{][^)\]}]*[)\]}]?|\\.""", re.DOTALL
)
_IMPORTANT = re.compile(r"!\s*important$")
_CODE = ("code", "kbd", "samp")
_TARGET = re.compile(r"(?:https?://|mailto:)[^\s()<>]{1,300}", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\xad\u200b\ufeff]")


class Visitor(Protocol):
    """Who is shown a tree node by node."""

    def open(self, node: LexborNode) -> bool:
        """Whether to go into the node; if so, it is closed afterwards."""

    def close(self, node: LexborNode) -> None:
        """All that is in the node was shown."""


def walk(root: LexborNode, visitor: Visitor) -> None:
    """Show the visitor every node of a tree, depth first. Raises Unreadable where it is too deep."""
    path: list[LexborNode] = []
    node: LexborNode | None = root
    while node is not None:
        if visitor.open(node):
            path.append(node)
            if len(path) > DEPTH:
                raise too_deep()
            following = node.child
        else:
            following = node.next if path else None
        while following is None and path:
            done = path.pop()
            visitor.close(done)
            following = done.next if path else None
        node = following


def too_deep() -> Unreadable:
    return Unreadable(f"The page has more than {DEPTH:,} elements in one another; simplify it.")


def is_seen(node: LexborNode) -> bool:
    """Whether a node is an element that a browser shows."""
    tag = node.tag
    if not tag or tag[0] == "-" or tag in _UNSEEN:
        return False
    attributes = node.attributes
    if tag == "dialog" and "open" not in attributes:
        return False
    return not attributes or not (
        (attributes.get("hidden", "until-found") or "") != "until-found"
        or attributes.get("aria-hidden") == "true"
        or _hides(attributes.get("style") or "")
    )


def _hides(style: str) -> bool:
    """Whether a `style` attribute hides its element; of two declarations the important or the last one counts."""
    declarations = _OPAQUE.sub(lambda part: " " if part["comment"] else "_", style.lower()).split(";")
    pairs = [(name.strip(), value.strip()) for name, _, value in (each.partition(":") for each in declarations)]
    pairs.sort(key=lambda pair: bool(_IMPORTANT.search(pair[1])))
    values = {name: _IMPORTANT.sub("", value).strip() for name, value in pairs}
    return any(values.get(name) in hiding for name, hiding in _HIDING.items())


class Line:
    """Puts together the words between two blocks: links keep their target, pictures say what they show."""

    def __init__(self) -> None:
        self.has_parts = False  # whether there was more in it than words
        self._said: list[str] = []
        self._links: list[int] = []  # where the open links begin

    def open(self, node: LexborNode) -> bool:
        """Take a text or the begin of an element; whether to go into it."""
        tag = node.tag
        if tag == "-text":
            self._say(node.text_content)
            return False
        self.has_parts = self.has_parts or tag in AT_ONCE
        if not is_seen(node):
            return False
        if tag == "a":
            self._links.append(len(self._said))
        elif tag == "br":
            self._said.append("\n")
        elif tag == "img":
            self._say(node.attributes.get("alt"))
        elif tag in _CODE:
            self._said.append("`")
        elif tag in BLOCKS:
            self._said.append(" ")
        return True

    def close(self, node: LexborNode) -> None:
        """Take the end of an element."""
        if node.tag == "a" and self._links:
            begin = self._links.pop()
            label, target = "".join(self._said[begin:]).strip(), (node.attributes.get("href") or "").strip()
            if label and label != target and _TARGET.fullmatch(target):
                self._said.insert(begin, "[")
                self._said.append(f"]({target})")
        elif node.tag in _CODE:
            self._said.append("`")
        elif node.tag in BLOCKS:
            self._said.append(" ")

    def taken(self) -> str:
        """The words, once; what is said from now on is another line."""
        text = _SPACE.sub(" ", _INVISIBLE.sub("", "".join(self._said)).replace("\n", "\v"))
        self._said, self._links = [], []
        return re.sub(r" ?\v ?", "\n", text).strip()

    def _say(self, text: str | None) -> None:
        if text:
            self._said.append(_SPACE.sub(" ", text))


class _Code:
    """Takes the text of a listing as it stands."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def open(self, node: LexborNode) -> bool:
        if node.tag == "-text":
            self.said.append(node.text_content or "")
        elif node.tag == "br":
            self.said.append("\n")
        return is_seen(node)

    def close(self, node: LexborNode) -> None:
        pass


def line_of(node: LexborNode) -> str:
    """An element's words in one line."""
    line = Line()
    walk(node, line)
    return words(line.taken())


def words(text: str) -> str:
    """A text without line ends and what can't be seen."""
    return _SPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


def listing(pre: LexborNode) -> str:
    """The code of a `pre` between fences."""
    found = _Code()
    walk(pre, found)
    code = _INVISIBLE.sub("", "".join(found.said)).strip("\n")
    fence = max(["``", *re.findall("`{3,}", code)], key=len) + "`"
    return f"{fence}\n{code}\n{fence}" if code.strip() else ""


def children_of(node: LexborNode) -> Iterator[LexborNode]:
    """The elements in a node that a browser shows."""
    child = node.child
    while child is not None:
        if is_seen(child):
            yield child
        child = child.next
