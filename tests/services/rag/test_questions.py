"""What a question asks for is read from its form, in the languages that the reader knows."""

import pytest

from services.rag.questions import asked_by, begins_with, says_what_it_is


@pytest.mark.parametrize(("question", "words"), [
    ("How do I connect my own model?", ("connect", "model")),
    ("How long is a lease?", ("lease",)),
    ("What happens when the server crashes?", ("server", "crashes")),
    ("What does SEAL mean?", ("seal",)),
    ("Wie viele Verbindungen hält ein Prozess?", ("verbindungen", "halt", "prozess")),
    ("long runs", ("long", "runs")),
    ("own", ("own",)),
    ("Who are you?", ()),
    ("", ()),
])
def test_looks_for_the_words_that_an_answer_may_have(question: str, words: tuple[str, ...]) -> None:
    assert asked_by(question).words == words


@pytest.mark.parametrize(("question", "subject"), [
    ("What is Chatkeep?", ("chatkeep",)), ("what's a slot", ("slot",)), ("What are the runs?", ("runs",)),
    ("What does CHATKEEP_HOST mean?", ("chatkeep", "host")), ("What does chatkeep doctor do?", ("chatkeep", "doctor")),
    ("Was ist ein Slot?", ("slot",)), ("Was bedeutet Lease?", ("lease",)),
    ("什么是会话？", ("会话",)), ("会话是什么", ("会话",)), ("会話とは何ですか？", ("会話",)),
    ("How do I stop?", ()), ("What happens?", ()), ("Is it what it is?", ()),
])
def test_knows_the_thing_whose_definition_is_asked_for(question: str, subject: tuple[str, ...]) -> None:
    assert asked_by(question).subject == subject


@pytest.mark.parametrize(("question", "steps", "number"), [
    ("How do I stop it?", True, False), ("Which command stops it?", True, False), ("Wie stoppe ich es?", True, False),
    ("怎么停止？", True, False), ("How long is it?", False, True), ("How many may I open?", False, True),
    ("Wie groß ist es?", False, True), ("多少？", False, True), ("How are they shown?", False, False),
    ("pgbouncer", True, False), ("backup restore", True, False),
])
def test_knows_whether_steps_or_a_number_is_asked_for(question: str, steps: bool, number: bool) -> None:
    asked = asked_by(question)
    assert (asked.steps, asked.number) == (steps, number)


@pytest.mark.parametrize(("text", "subject", "begins", "defines"), [
    ("A slot is a row.", ["slot"], True, True), ("Slots are rows.", ["slot"], True, True),
    ("`seq` rises.", ["seq"], True, False), ("The chatkeep doctor looks.", ["chatkeep", "doctor"], True, False),
    ("`CHATKEEP_HOST` | where", ["chatkeep"], False, False), ("Chatkeep-like is", ["chatkeep"], False, False),
    ("In a slot is", ["slot"], False, False), ("Slot", ["slot", "machine"], False, False),
    ("会話は行です。", ["会話"], True, False),
])
def test_knows_a_sentence_that_is_about_the_thing(text: str, subject: list[str], begins: bool, defines: bool) -> None:
    words = text.casefold().replace("`", "").replace(".", "").split()
    assert begins_with(text, subject) is begins
    assert (begins and says_what_it_is(words, subject)) is defines
