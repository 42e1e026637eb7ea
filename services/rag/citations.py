"""Which passages an answer cites, read from its finished text: only what stands there and is in range.

Two forms: RAGFlow's `[ID:n]` inside the text, counted from 0, and a last line of `[1][3]`, counted from 1.
What stands in code is code.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from services.rag.quotes import FENCE
from services.rag.retrievers import Document

_ID = r"ID[ \t]*:?[ \t]*(\d{1,9})[ \t]*"
_MARKS = re.compile(
    rf"\[[ \t]*{_ID}\]|\([ \t]*{_ID}\)|【[ \t]*{_ID}】|\bref[ \t]*(\d{{1,9}})(?![\w.]*\w)", re.IGNORECASE
)
_CODE = re.compile(rf"{FENCE.pattern}|(?<!`)(?P<ticks>`++)[^\n]{{1,1000}}?(?<!`)(?P=ticks)(?!`)", FENCE.flags)
_LAST_LINE = re.compile(r"(?:\[\d{1,9}\][ \t]*)+")


def parse_ids(text: str, count: int) -> list[int]:
    """Indexes below `count` that the text cites, in order of first appearance.

    Read as `[ID:n]`, `[ID n]`, `(ID: n)`, `【ID: n】` and `ref n`, counted from 0.
    """
    said = _CODE.sub("`", text)  # what is put together must not make a mark
    numbers = (int(next(filter(None, mark.groups()))) for mark in _MARKS.finditer(said))
    return list(dict.fromkeys(number for number in numbers if number < count))


def parse_last_line(text: str, count: int) -> list[int]:
    """Numbers from 1 to `count` in a last line that holds nothing but `[n]`; of any other line, none."""
    lines = text.strip().splitlines()
    if not lines or not _LAST_LINE.fullmatch(lines[-1].strip()):
        return []
    numbers = (int(number) for number in re.findall(r"\d+", lines[-1]))
    return list(dict.fromkeys(number for number in numbers if 1 <= number <= count))


def group_sources(documents: Iterable[Document]) -> list[list[Document]]:
    """The sources as a prompt numbers them: `groups[n - 1]` is what `[n]` cites.

    Passages of one page are one group, at the place of the best of them, in the page's own order; a
    passage without a URL stands alone.
    """
    groups: dict[str | int, list[Document]] = {}
    for position, document in enumerate(documents):
        groups.setdefault(document.page_url() or position, []).append(document)
    return [sorted(group, key=lambda document: document.chunk_index) for group in groups.values()]


def narrow(
    doc_aggs: Sequence[dict[str, Any]], chunks: Sequence[dict[str, Any]], cited: Iterable[int]
) -> list[dict[str, Any]]:
    """The documents that hold a cited chunk; all of them where nothing is cited."""
    documents = {chunks[index]["document_id"] for index in cited}
    return [item for item in doc_aggs if item["doc_id"] in documents] or list(doc_aggs)
