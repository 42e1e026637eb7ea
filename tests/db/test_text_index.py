"""One normaliser for both engines, and an index that takes any text for a question."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.settings import Settings
from db.database import change, connection, fetch
from db.models import Dataset, DatasetChunk, DatasetDocument
from db.text_index import (
    MAX_WORD_LENGTH,
    FoundChunk,
    Scope,
    count_chunks,
    load_chunks,
    search,
    search_text,
    search_words,
)


class TestWords:
    @pytest.mark.parametrize(("text", "words"), [
        ("The Café's menu", ["the", "cafe", "s", "menu"]),
        ("Straße ＡＢＣ ﬁne İ", ["strasse", "abc", "fine", "i"]),
        ("snake_case x.y v2.0", ["snake", "case", "x", "y", "v2", "0"]),
        ("中文搜索 字", ["中文", "文搜", "搜索", "字"]),
        ("ハロー ﾊﾛｰ がある", ["ハロ", "ロー", "ハロ", "ロー", "かあ", "ある"]),
        ("한국어 ab한국", ["한국", "국어", "ab", "한국"]),
        ("日本・東京、𠀀𠀁", ["日本", "東京", "𠀀𠀁"]),
        ("step❽b x²", ["step", "b", "x2"]),
        ("12e4ab 3e5ß 1e5 e4ab 3e5中", ["12e4", "ab", "3e5", "ss", "1e5", "e4ab", "3e5", "中"]),
        (" \x00\ud800'\"*** ", []),
    ])
    def test_are_without_marks_case_and_punctuation(self, text: str, words: list[str]) -> None:
        assert search_words(text) == words

    def test_are_cut_where_postgres_would_refuse_them(self) -> None:
        assert search_words("ß" * 10_000) == ["s" * MAX_WORD_LENGTH]

    @given(st.text())
    def test_of_words_are_the_same_words(self, text: str) -> None:
        assert search_words(search_text(text)) == search_words(text)

    @given(st.text())
    def test_hold_letters_and_digits_only(self, text: str) -> None:
        assert all(word.isalnum() for word in search_words(text))


@pytest.fixture
def held(store: Settings) -> Iterator[None]:
    with connection():
        yield


class Library:
    """Two datasets of `acme`, one of a stranger; `put` adds a document of one passage or more."""

    def __init__(self) -> None:
        for name, tenant in (("red", "acme"), ("blue", "acme"), ("foreign", "stranger")):
            Dataset.create(id=name, tenant_id=tenant, name=name)

    def put(self, id: str, *contents: str, dataset: str = "red") -> None:
        tenant = Dataset.get(Dataset.id == dataset).tenant_id
        owner = {"tenant_id": tenant, "dataset_id": dataset}
        DatasetDocument.create(id=id, name=f"{id}.md", digest="", **owner)
        for index, content in enumerate(contents):
            DatasetChunk.create(
                id=f"{id}-{index}", document_id=id, chunk_index=index, content=content,
                search_text=search_text(content), **owner,
            )
        change("UPDATE {dataset} SET chunk_count = chunk_count + %s WHERE id = %s", (len(contents), dataset))

    def find(self, question: str, limit: int = 10, **more: list[str]) -> set[str]:
        datasets = more.pop("datasets", ["red", "blue"])
        return set(search(Scope("acme", datasets, **more), search_words(question), limit).ids)


@pytest.fixture
def library(held: None) -> Library:
    return Library()


def test_finds_passages_with_any_of_the_words(library: Library) -> None:
    library.put("a", "The deploy guide", "Something else")
    library.put("b", "An agent's first steps", dataset="blue")
    assert library.find("deploy AGENT zebra") == {"a-0", "b-0"}


def test_says_all_about_what_it_finds(library: Library) -> None:
    library.put("a", "one", "Déploy 中文")
    (found,) = load_chunks("acme", search(Scope("acme", ["red"]), ["deploy"], 5).ids)
    assert found == FoundChunk(
        id="a-1", document_id="a", dataset_id="red", document_name="a.md", location=None,
        content="Déploy 中文", heading="", page=None, chunk_index=1, search_text="deploy 中文",
    )


@pytest.mark.parametrize("question", ["文搜", "CAFE", "naïve", "ハロー", "v2", "1e5", "x1y2z3", "𝟚𝟛", "٣٤"])
def test_finds_every_script_on_both_engines(library: Library, question: str) -> None:
    library.put("a", "中文搜索 Café naive ﾊﾛｰ, v2 1e5 x1y2z3 23 ٣٤")
    assert library.find(question) == {"a-0"}


def test_finds_exactly_the_passages_that_hold_the_word(library: Library) -> None:
    chance = random.Random(5)
    letters = ["abcxyz0123456789e", "12eab", "中文字한국カタ日a1", "αβγдежאבגابتक"]
    texts = [
        " ".join("".join(chance.choices(chance.choice(letters), k=chance.randint(1, 5))) for _ in range(6))
        for _ in range(150)
    ]
    library.put("a", *texts)
    for word in {word for text in texts[:40] for word in search_words(text)}:
        holders = {f"a-{index}" for index, text in enumerate(texts) if word in search_words(text)}
        assert library.find(word, limit=1_000) == holders


def test_stays_inside_the_tenant_the_datasets_and_the_documents(library: Library) -> None:
    library.put("a", "deploy")
    library.put("b", "deploy", dataset="blue")
    library.put("c", "deploy", dataset="foreign")
    assert library.find("deploy", datasets=["red", "foreign"]) == {"a-0"}
    assert library.find("deploy", document_ids=["b", "c", "x\x00"]) == {"b-0"}
    assert library.find("deploy", document_ids=[]) == set()
    assert library.find("deploy", datasets=[]) == set()


@pytest.mark.parametrize("text", [
    '"', "'", "***", "-quick", "NEAR(a b)", "content:x", "a\x00b", "quick & !", "a | b", "\\", "x" * 10_000,
    "quick " * 2_000, " ".join(map(str, range(2_000))), "(", "AND OR NOT", ":*", "\ud800", "%s {dataset} ?", "𞤀a",
])
def test_takes_any_text_for_words(library: Library, text: str) -> None:
    library.put("a", "The quick fox")
    for words in ([text], search_words(text), text.split(" ")):
        assert len(search(Scope("acme", ["red"]), words, 5).ids) == ("quick" in text)


@pytest.mark.parametrize("question", ["", "  ", "\x00", "?!"])
def test_finds_nothing_where_nothing_is_asked(library: Library, question: str) -> None:
    library.put("a", "text")
    assert library.find(question) == set()


def test_keeps_the_limit(library: Library) -> None:
    library.put("a", *["deploy now"] * 5)
    assert len(library.find("deploy", limit=3)) == 3
    assert library.find("deploy", limit=0) == set()


def test_finds_the_one_passage_with_the_rare_word_among_many_with_the_common_ones(library: Library) -> None:
    library.put("common", *["server setup server setup"] * 40)
    library.put("rare", "A long text about other things that names the frobnicator once", dataset="blue")
    assert "rare-0" in library.find("server setup frobnicator", limit=10)


def test_of_common_words_alone_no_more_passages_come_than_are_enough(library: Library) -> None:
    library.put("many", *["a pump"] * 300)
    assert len(library.find("pump", limit=300)) == 300
    assert len(library.find("pump", limit=299)) == 256


def test_what_a_search_asks_of_the_planner_ends_with_it(library: Library, engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite's planner is asked for nothing")
    library.put("a", "a pump")
    assert library.find("pump") == {"a-0"}
    assert fetch("SHOW enable_seqscan") == [("on",)]


def test_follows_a_passage_that_changes_and_goes(library: Library) -> None:
    library.put("a", "old words", "other")
    DatasetChunk.update(search_text="new words").where(DatasetChunk.id == "a-0").execute()
    assert (library.find("old"), library.find("new")) == (set(), {"a-0"})
    DatasetDocument.delete().where(DatasetDocument.id == "a").execute()
    assert library.find("new other") == set()


def test_leaves_a_sound_index_when_a_dataset_goes(library: Library, engine: str) -> None:
    library.put("a", *["deploy"] * 50)
    Dataset.delete().where(Dataset.id == "red").execute()
    library.put("b", "deploy", dataset="blue")
    assert library.find("deploy") == {"b-0"}
    if engine == "sqlite":
        check = "INSERT INTO dataset_chunk_text(dataset_chunk_text, rank) VALUES ('integrity-check', 1)"
        assert fetch(check) == []


def test_counts_a_tenants_passages_only(library: Library) -> None:
    library.put("a", "one", "two")
    library.put("c", "three", dataset="foreign")
    assert count_chunks("acme", ["red", "foreign", "unknown"]) == 2
    assert count_chunks("acme", []) == 0
