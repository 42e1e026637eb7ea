"""Words of one stem are found for each other; words that only look alike count little or nothing."""

import pytest

from services.rag.likeness import SAME, forms, likeness, stem


@pytest.mark.parametrize(("asked", "word"), [
    ("test", "tests"), ("crash", "crashes"), ("delete", "deleting"), ("deleted", "deletes"), ("stop", "stopped"),
    ("run", "running"), ("install", "installs"), ("setting", "settings"), ("process", "processes"),
    ("modell", "models"), ("modelle", "modell"), ("frage", "fragen"), ("page", "pages"), ("server", "servers"),
])
def test_forms_of_one_word_are_nearly_the_same(asked: str, word: str) -> None:
    assert likeness(asked, word) == likeness(word, asked) == SAME


@pytest.mark.parametrize(("asked", "word", "share"), [
    ("port", "port", 1.0), ("bench", "benchmark", 0.5), ("connect", "connection", 0.5), ("licence", "license", 0.5),
    ("conversation", "conversion", 0.0), ("port", "postgresql", 0.0), ("chat", "that", 0.0), ("text", "test", 0.0),
    ("v1", "v10", 0.0), ("接続", "接触", 0.0), ("", "", 1.0), ("is", "i", 0.0),
])
def test_words_that_begin_alike_count_half_and_others_nothing(asked: str, word: str, share: float) -> None:
    assert likeness(asked, word) == likeness(word, asked) == share


@pytest.mark.parametrize(("word", "some"), [
    ("deleted", {"delete", "deletes", "deleting", "delet"}), ("run", {"run", "runs", "running", "runner"}),
    ("references", {"reference", "referenced"}), ("v1", {"v1"}), ("is", {"is"}), ("", {""}), ("接続", {"接続"}),
])
def test_the_forms_of_a_word_are_itself_and_all_of_its_stem(word: str, some: set[str]) -> None:
    assert forms(word)[0] == word
    assert some <= set(forms(word))
    assert {stem(form) for form in forms(word)} == {stem(word)}
