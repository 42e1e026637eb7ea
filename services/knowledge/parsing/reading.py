"""One file, of whatever kind, to passages. What it is, its content says first, then its name."""

import re
from collections.abc import Iterable

from services.errors import Unreadable
from services.knowledge.parsing import html, markdown, pdf
from services.knowledge.parsing.decoding import decode, is_html
from services.knowledge.parsing.passages import Heading, Passage, cut

CHARACTERS = 20_000_000  # of a document's text
PASSAGES = 100_000
_MARKDOWN = (".md", ".markdown", ".mdx")
_PDF_START = 1024  # bytes in which a PDF says that it is one
_START = 4096  # characters in which a page says that it is one


def read(name: str, content: bytes) -> list[Passage]:
    """A file's passages in order. Raises Unreadable with a sentence for people.

    In this process and without limits of time and memory: for files that nobody could have prepared.
    """
    if _is_pdf(content):
        return _bounded(pdf.passages_of(content))
    text = decode(name, content)
    if not text.strip():
        raise Unreadable("The file is empty.")
    if is_html(name, text[:_START].encode()):
        passages = _bounded(cut(html.blocks_of(text)))
        if not passages:
            raise Unreadable("The page shows no text by itself; open it in a browser and save what you see.")
        return passages
    if len(text) > CHARACTERS:
        raise _too_long()
    return _bounded(parse(name, text))


def parse(name: str, text: str) -> list[Passage]:
    """The passages of a text in order; its name's ending says whether it is Markdown."""
    text = re.sub(r"\r\n?", "\n", text)
    if name.lower().endswith(_MARKDOWN):
        return list(cut(markdown.blocks_of(text)))
    paragraphs: list[tuple[str, Heading | None]] = [
        (paragraph, None) for paragraph in re.split(r"(?<=\n)(?=[ \t]*\n)", text)
    ]
    return list(cut(paragraphs))


def _is_pdf(content: bytes) -> bool:
    # Further on, `%PDF-` may also be a text's word for it.
    place = content[:_PDF_START].find(b"%PDF-")
    return place == 0 or (place > 0 and b" obj" in content)


def _bounded(passages: Iterable[Passage]) -> list[Passage]:
    bounded: list[Passage] = []
    characters = 0
    for passage in passages:
        bounded.append(passage)
        characters += len(passage.content)
        if len(bounded) > PASSAGES:
            raise Unreadable(f"The document has more than {PASSAGES:,} sections; split it into several files.")
        if characters > CHARACTERS:
            raise _too_long()
    return bounded


def _too_long() -> Unreadable:
    return Unreadable(f"The document has more than {CHARACTERS:,} characters; split it into several files.")
