"""Full-text search over dataset chunks: one normaliser, and the index of whichever engine there is.

Both engines index `dataset_chunk.search_text`, which holds nothing but `search_words`, so that neither
one's own rules for words decide what is found. Ranking that a user sees is made by services/rag.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from db.database import SQLITE, dialect, fetch

MAX_WORDS = 64  # distinct words of a question that are searched
MAX_WORD_LENGTH = 64  # characters; PostgreSQL refuses a word of 2 KB

# Scripts written without spaces: kana, Han, Hangul with its letters.
_CJK = (
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
)
_RUNS = re.compile(rf"(?P<cjk>(?:(?![\W_])[{_CJK}])+)|[^\W_{_CJK}]+")


def search_words(text: str) -> list[str]:
    """The words of a text as both engines know them, in order, with repeats.

    Without marks and case; runs of CJK characters become overlapping pairs, a single one stays.
    """
    letters = "".join(map(_letter, unicodedata.normalize("NFKD", text)))
    # NFC puts Hangul syllables together again; nothing else is left to compose.
    folded = unicodedata.normalize("NFC", letters.casefold())
    words: list[str] = []
    for run in _RUNS.finditer(folded):
        words.extend(_pairs(run[0]) if run["cjk"] else [run[0][:MAX_WORD_LENGTH]])
    return words


def search_text(text: str) -> str:
    """What the index holds for a text: its words with single spaces."""
    return " ".join(search_words(text))


def _letter(character: str) -> str:
    category = unicodedata.category(character)
    if category == "No":  # a sign like the 8 in a circle: no letter to PostgreSQL, so not to us
        return " "
    return "" if category.startswith("M") else character


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A passage that has a word of the question; `location` is its document's path or URL."""

    id: str
    document_id: str
    dataset_id: str
    document_name: str
    location: str | None
    content: str
    heading: str
    page: int | None
    chunk_index: int
    search_text: str


_COLUMNS = (
    "c.id, c.document_id, c.dataset_id, d.name, d.location, c.content, c.heading, c.page, "
    "c.chunk_index, c.search_text"
)


@dataclass(frozen=True, slots=True)
class _Index:
    """How one engine is asked. CROSS JOIN keeps SQLite from walking the chunks first."""

    source: str
    among: str
    rank: str
    word: str
    either: str


_INDEXES = {
    "sqlite": _Index(
        "FROM dataset_chunk_text CROSS JOIN {dataset_chunk} c ON c.rowid = dataset_chunk_text.rowid "
        "CROSS JOIN {dataset_document} d ON d.id = c.document_id "
        "WHERE dataset_chunk_text MATCH %s AND c.tenant_id = %s",
        "IN (SELECT value FROM json_each(%s))",
        "bm25(dataset_chunk_text)",
        '"%s"', " OR ",
    ),
    "postgres": _Index(
        "FROM to_tsquery('simple', %s) AS question JOIN {dataset_chunk} c ON c.search_vector @@ question "
        "JOIN {dataset_document} d ON d.id = c.document_id WHERE c.tenant_id = %s",
        "= ANY(%s)",
        "ts_rank(c.search_vector, question) DESC",
        "'%s'", " | ",
    ),
}


@dataclass(frozen=True, slots=True)
class _Scope:
    """Whose chunks are searched, as a condition and its parameters."""

    tenant_id: str
    dataset_ids: Sequence[str]
    document_ids: Sequence[str] | None
    index: _Index = field(default_factory=lambda: _INDEXES[dialect().name])

    @property
    def source(self) -> str:
        condition = f"{self.index.source} AND c.dataset_id {self.index.among}"
        return condition if self.document_ids is None else f"{condition} AND d.id {self.index.among}"

    def parameters(self, words: Iterable[str]) -> list[Any]:
        lists = [self.dataset_ids] + ([] if self.document_ids is None else [self.document_ids])
        return [self._any_of(words), self.tenant_id, *(self._listed(ids) for ids in lists)]

    def _any_of(self, words: Iterable[str]) -> str:
        """Words are letters and digits only, so quoting them leaves no operator."""
        return self.index.either.join(self.index.word % word for word in words)

    def _listed(self, ids: Sequence[str]) -> Any:
        sound = [id for id in ids if "\x00" not in id]  # PostgreSQL's driver refuses the others
        return json.dumps(sound) if dialect() is SQLITE else sound


def find_chunks(
    tenant_id: str, dataset_ids: Sequence[str], words: Iterable[str], limit: int,
    document_ids: Sequence[str] | None = None,
) -> list[FoundChunk]:
    """At most `limit` chunks of these datasets (and documents, if given) that have any of the words.

    Where more have one, the engine's own rank chooses, after the chunks with the rarest words.
    `words` may be any text; an empty `document_ids` finds nothing.
    """
    wanted = list(dict.fromkeys(part for word in words for part in search_words(word)))[:MAX_WORDS]
    if not wanted or not dataset_ids or limit < 1 or (document_ids is not None and not document_ids):
        return []
    scope = _Scope(tenant_id, dataset_ids, document_ids)
    found = _search(scope, wanted, limit)
    if len(found) < limit:
        return found
    return list({chunk.id: chunk for chunk in _with_rarest(scope, wanted, limit) + found}.values())[:limit]


def count_chunks(tenant_id: str, dataset_ids: Sequence[str]) -> int:
    """How many chunks these datasets of the tenant hold."""
    scope = _Scope(tenant_id, dataset_ids, None)
    statement = "SELECT coalesce(sum(chunk_count), 0) FROM {dataset} WHERE tenant_id = %s AND id "
    return int(fetch(statement + scope.index.among, scope.parameters(())[1:])[0][0])


def _search(scope: _Scope, words: Iterable[str], limit: int) -> list[FoundChunk]:
    statement = (
        f"SELECT {_COLUMNS} {scope.source} ORDER BY {scope.index.rank}, c.document_id, c.chunk_index LIMIT %s"
    )
    return [FoundChunk(*row) for row in fetch(statement, [*scope.parameters(words), limit])]


def _with_rarest(scope: _Scope, words: Sequence[str], limit: int) -> list[FoundChunk]:
    """Every chunk with one of the rarest words, at most half of `limit`.

    PostgreSQL's rank doesn't know that a word is rare: a thousand chunks with two common ones would
    hide the only one that names the thing.
    """
    room = limit // 2
    counted = sorted((_count(scope, word, room + 1), word) for word in words)
    rarest: list[str] = []
    for count, word in counted:
        room -= count
        if room < 0:
            break
        rarest.append(word)
    return _search(scope, rarest, limit) if rarest else []


def _count(scope: _Scope, word: str, most: int) -> int:
    statement = f"SELECT count(*) FROM (SELECT 1 {scope.source} LIMIT %s) counted"
    return int(fetch(statement, [*scope.parameters([word]), most])[0][0])
