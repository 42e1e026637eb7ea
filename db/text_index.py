"""Full-text search over dataset chunks: one normaliser, and the index of whichever engine there is.

Both engines index `dataset_chunk.search_text`, which holds nothing but `search_words`, so that neither
one's own rules for words decide what is found. Ranking that a user sees is made by services/rag.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from db.database import change, dialect, fetch, transaction
from db.sqlite import SQLITE

_ENOUGH = 256  # chunks, beside which those with fewer and commoner words are noise
MAX_WORDS = 64  # distinct words of a question that are searched
MAX_WORD_LENGTH = 64  # characters; PostgreSQL refuses a word of 2 KB

# Scripts written without spaces: kana, Han, Hangul with its letters.
_CJK = (
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
)
# PostgreSQL reads the beginning of `12e4ab` as a number, so here too it is a word of its own.
_ASCII_WORDS = re.compile("[0-9]+e[0-9]+(?=[a-z])|[a-z0-9]+")
_RUNS = re.compile(rf"(?P<cjk>(?:(?![\W_])[{_CJK}])+)|[0-9]+e[0-9]+(?=[^\W0-9_])|[^\W_{_CJK}]+")


def search_words(text: str) -> list[str]:
    """The words of a text as both engines know them, in order, with repeats.

    Without marks and case; runs of CJK characters become overlapping pairs, a single one stays.
    """
    if text.isascii():  # ten times as fast, and the same
        return [word[:MAX_WORD_LENGTH] for word in _ASCII_WORDS.findall(text.lower())]
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
    """A passage as a search sees it; `location` is its document's path or URL."""

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
    positions: str = "[]"
    meta_fields: str = "{}"


@dataclass(frozen=True, slots=True)
class ChunkText:
    """What ranking reads of many passages, of which few are shown."""

    id: str
    document_id: str
    chunk_index: int
    words: str
    heading: str = ""


_COLUMNS = (
    "c.id, c.document_id, c.dataset_id, d.name, d.location, c.content, c.heading, c.page, "
    "c.chunk_index, c.search_text, c.positions, d.meta_fields"
)


@dataclass(frozen=True, slots=True)
class _Index:
    """How one engine is asked. CROSS JOIN keeps SQLite from walking the chunks first; both orders are that
    of insertion, and come without a sort."""

    source: str
    order: str
    word: str
    either: str
    all: str


_INDEXES = {
    "sqlite": _Index(
        "FROM dataset_chunk_text CROSS JOIN {dataset_chunk} c ON c.rowid = dataset_chunk_text.rowid "
        "WHERE dataset_chunk_text MATCH %s AND c.tenant_id = %s",
        "dataset_chunk_text.rowid", '"%s"', " OR ", " AND ",
    ),
    "postgres": _Index(
        "FROM {dataset_chunk} c WHERE c.search_vector @@ to_tsquery('simple', %s) AND c.tenant_id = %s",
        "c.id", "'%s'", " | ", " & ",
    ),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose chunks are searched: a tenant's datasets, and of them these documents only, if any are named."""

    tenant_id: str
    dataset_ids: Sequence[str]
    document_ids: Sequence[str] | None = None

    def condition(self) -> str:
        """What stands behind a `WHERE ... c.tenant_id = %s`."""
        documents = "" if self.document_ids is None else f" AND c.document_id {among()}"
        return f" AND c.dataset_id {among()} AND c.available = 1{documents}"

    def parameters(self) -> list[Any]:
        lists = [self.dataset_ids] + ([] if self.document_ids is None else [self.document_ids])
        return [self.tenant_id, *map(listed, lists)]

    def is_empty(self) -> bool:
        return not self.dataset_ids or (self.document_ids is not None and not self.document_ids)


def _index() -> _Index:
    return _INDEXES[dialect().name]


def among() -> str:
    """The condition that a column is one of `listed` ids."""
    return "IN (SELECT value FROM json_each(%s))" if dialect() is SQLITE else "= ANY(%s)"


def listed(ids: Iterable[str]) -> Any:
    """Ids as the one parameter that stands for all of them."""
    sound = [id for id in ids if "\x00" not in id]  # PostgreSQL's driver refuses the others
    return json.dumps(sound) if dialect() is SQLITE else sound


@dataclass(frozen=True, slots=True)
class Found:
    """Ids of chunks with a word of the question, and how many chunks hold each word; no number is over the
    search's limit by more than one, which says "many"."""

    ids: list[str]
    holders: dict[str, int]


def _itself(word: str) -> Sequence[str]:
    return (word,)


def search(
    scope: Scope, words: Iterable[str], limit: int, forms: Callable[[str], Sequence[str]] = _itself
) -> Found:
    """At most `limit` chunks that have any of the words, in any of its forms; `words` may be any text.

    Where more have one, rare words go first: all chunks with one of them, as far as they fit; then those
    with all of the others, then with ever fewer of those until there are enough. Both engines choose the same.
    """
    wanted = list(dict.fromkeys(part for word in words for part in search_words(word)))[:MAX_WORDS]
    if not wanted or scope.is_empty() or limit < 1:
        return Found([], {})
    counted = {word: forms(word) for word in wanted}
    with _by_the_index():
        holders = _count(scope, counted, limit + 1)
        return Found(_choose(scope, counted, holders, limit), holders)


def _choose(
    scope: Scope, forms: Mapping[str, Sequence[str]], holders: Mapping[str, int], limit: int
) -> list[str]:
    by_rarity = sorted((word for word in holders if holders[word]), key=lambda word: (holders[word], word))
    rare: list[str] = []
    for word in by_rarity:
        if sum(holders[each] for each in [*rare, word]) > limit:
            break
        rare.append(word)
    found = dict.fromkeys(_ids(scope, _index().either, [forms[word] for word in rare], limit)) if rare else {}
    common = by_rarity[len(rare) :]
    enough = min(limit, _ENOUGH)
    while common and len(found) < enough:
        found |= dict.fromkeys(_ids(scope, _index().all, [forms[word] for word in common], enough))
        common = common[: len(common) // 2]
    return list(found)[:limit]


@contextmanager
def _by_the_index() -> Iterator[None]:
    """PostgreSQL doesn't reckon with what it costs to look into a text's packed words, so where many texts match
    it would walk through the rows; the index takes a quarter of that."""
    if dialect() is SQLITE:
        yield
        return
    with transaction():
        change("SET LOCAL enable_seqscan = off")
        yield


def load_chunks(tenant_id: str, ids: Sequence[str]) -> list[FoundChunk]:
    """These chunks of the tenant, in no order; those that are gone are missing."""
    statement = (
        f"SELECT {_COLUMNS} FROM {{dataset_chunk}} c JOIN {{dataset_document}} d ON d.id = c.document_id "
        f"WHERE c.tenant_id = %s AND c.id {among()}"
    )
    return [FoundChunk(*row) for row in fetch(statement, [tenant_id, listed(ids)])] if ids else []


def load_texts(tenant_id: str, ids: Sequence[str]) -> list[ChunkText]:
    """The words of these chunks of the tenant, in no order."""
    statement = (
        "SELECT c.id, c.document_id, c.chunk_index, c.search_text, c.heading FROM {dataset_chunk} c "
        f"WHERE c.tenant_id = %s AND c.id {among()}"
    )
    return [ChunkText(*row) for row in fetch(statement, [tenant_id, listed(ids)])] if ids else []


def count_chunks(tenant_id: str, dataset_ids: Sequence[str]) -> int:
    """How many chunks these datasets of the tenant hold."""
    statement = "SELECT coalesce(sum(chunk_count), 0) FROM {dataset} WHERE tenant_id = %s AND id "
    return int(fetch(statement + among(), [tenant_id, listed(dataset_ids)])[0][0])


def _ids(scope: Scope, joint: str, words: Sequence[Sequence[str]], limit: int) -> list[str]:
    index = _index()
    statement = f"SELECT c.id {index.source}{scope.condition()} ORDER BY {index.order} LIMIT %s"
    return [id for (id,) in fetch(statement, [_query(joint, words), *scope.parameters(), limit])]


def _count(scope: Scope, words: Mapping[str, Sequence[str]], most: int) -> dict[str, int]:
    """How many chunks hold each word in one of its forms, counted up to `most`; one statement for all of them."""
    one = f"(SELECT count(*) FROM (SELECT 1 {_index().source}{scope.condition()} LIMIT %s) counted)"
    parameters = [each for forms in words.values() for each in (_query("", [forms]), *scope.parameters(), most)]
    (counts,) = fetch("SELECT " + ", ".join([one] * len(words)), parameters)
    return dict(zip(words, map(int, counts), strict=True))


def _query(joint: str, words: Iterable[Sequence[str]]) -> str:
    """Words are letters and digits only, so quoting them leaves no operator."""
    index = _index()
    return joint.join(f"({index.either.join(index.word % form for form in forms)})" for forms in words)
