"""The built-in model: what it quotes stands in the passage it cites, and nothing else is said."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.events import End, TextDelta
from services.rag.chat_models import ExtractiveChatModel, ModelRequest
from services.rag.citations import parse_ids
from services.rag.extractive import MOST_QUOTES, NOTHING_FITS, best_quotes, is_small_talk, quotes_of
from services.rag.quotes import units_of
from services.rag.retrievers import Document

GUIDE = """# Backup of the server

Copy the database file while the server runs. Lunch is at noon every day.

## Restore

1. Stop the server first, e.g. with Ctrl-C.
2. Put the file back:

```sh
chatkeep restore backup.db
```

| backup | server |
| --- | --- |
"""
NOTES = "The server was moved to Berlin. A backup takes\nten minutes there. Ask \"Who knows?\" Then wait for it."


def answer(question: str, *texts: str | Document, quote: bool = True) -> str:
    passages = [text if isinstance(text, Document) else Document(f"c{n}", text) for n, text in enumerate(texts)]
    events = list(ExtractiveChatModel().stream(ModelRequest([], question, passages, quote=quote)))
    assert isinstance(events[-1], End)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def quoted(text: str) -> list[tuple[str, int]]:
    return [(quote, int(n)) for quote, n in re.findall(r"(.+?)\n? \[ID:(\d+)\](?:\n\n|$)", text, re.DOTALL)]


def test_quotes_the_sentences_that_answer_and_says_where_they_stand() -> None:
    assert answer("How do I copy the database?", GUIDE, NOTES) == "Copy the database file while the server runs. [ID:0]"
    assert "takes\nten minutes there. [ID:1]" in answer("How many minutes does a backup take?", GUIDE, NOTES)


def test_every_quote_is_verbatim_from_the_cited_passage() -> None:
    passages = (GUIDE, NOTES)
    found = quoted(answer("server backup file Berlin restore", *passages))
    assert 2 <= len(found) <= MOST_QUOTES
    assert {n for _, n in found} == {0, 1}
    assert all(quote in passages[n] for quote, n in found)


@given(st.lists(st.text("ab .!?\n#`~-*|1「。」> ", max_size=120), max_size=3), st.text("ab ", max_size=8))
def test_whatever_the_passage_quotes_are_parts_of_it(passages: list[str], question: str) -> None:
    for quote in best_quotes(question, [Document("c", text) for text in passages]):
        assert quote.text and quote.text in passages[quote.passage]
    for n, text in enumerate(passages):
        assert all(text[quote.position :].startswith(quote.text) for quote in quotes_of(text, n) + units_of(text, n))


def test_a_sentence_that_would_be_read_as_a_citation_is_no_quote() -> None:
    marked = "The frobnicator appendix says how an answer is cited, see ref 1. In the answer it cites as `[ID:1]`."
    said = answer("How does the frobnicator answer cite?", marked, "Cooking needs no frobnicator answer.")
    assert "In the answer it cites as `[ID:1]`. [ID:0]" in said
    assert "ref 1" not in said


@given(st.lists(st.lists(st.sampled_from(
    ["a", " ", "\n", ". ", "[ID:0]", "ref 1", "`", "``", "\n```\n", "~~~", "| ", "- "]
), max_size=30).map("".join), min_size=1, max_size=3))
def test_an_answer_cites_what_it_quotes_and_nothing_else(passages: list[str]) -> None:
    quotes = best_quotes("a", [Document("c", text) for text in passages])
    assert set(parse_ids(answer("a", *passages), len(passages))) == {quote.passage for quote in quotes}


def test_headings_tables_and_list_marks_are_no_sentences() -> None:
    assert [quote.text for quote in quotes_of(GUIDE)] == [
        "Copy the database file while the server runs.", "Lunch is at noon every day.",
        "Stop the server first, e.g. with Ctrl-C.", "Put the file back:", "```sh\nchatkeep restore backup.db\n```",
    ]
    assert quotes_of("A long underlined heading here\n---\n") == []


def test_a_short_code_block_is_quoted_whole_with_its_mark_behind_the_fence() -> None:
    text = answer("How do I restore?", GUIDE)
    assert "```sh\nchatkeep restore backup.db\n```\n [ID:0]" in text
    assert quotes_of("```\n" + "backup the server\n" * 20 + "```\n") == []
    assert quotes_of("```\nbackup the server\n") == []


def test_a_block_is_one_quote_with_its_sentence() -> None:
    text = "Run it so:\n\n```sh\nmake run\n```\n\nopens a page. It stays open.\n\n```\nmake it\n```\nAll is made."
    assert [(quote.text, quote.is_code) for quote in units_of(text)] == [
        ("Run it so:\n\n```sh\nmake run\n```\n\nopens a page.", False), ("It stays open.", False),
        ("```\nmake it\n```", True), ("All is made.", False),
    ]
    assert answer("How do I restore?", GUIDE).startswith("Put the file back:\n\n```sh")


def test_a_line_leads_to_the_code_below_it_with_a_colon_or_without() -> None:
    assert [quote.text for quote in units_of("`pull it`, then\n\n```sh\nrun it\n```\n")] == [
        "`pull it`, then\n\n```sh\nrun it\n```",
    ]


def test_half_a_sentence_is_no_quote() -> None:
    long = "```\n" + "make it\n" * 20 + "```\n"
    assert units_of(f"Put the file back:\n\n{long}") == []
    assert units_of(f"`pull the model`, then\n\n{long}") == []
    assert units_of("What you may take:\n\nRed and blue doors.")[0].text == "Red and blue doors."
    assert units_of("kept = []\nfor each in them\n    kept += each\nreturn kept") == []  # its fences are elsewhere
    assert len(units_of("- a point of a list that\n  has no full stop")) == 1
    assert units_of("![The page: a question and its answer](page.png)") == []


def test_what_says_something_before_its_colon_does_so_without_the_colon() -> None:
    long = "```\n" + "make it\n" * 20 + "```\n"
    (quote,) = units_of(f"The client works unchanged with this key and this address:\n\n{long}")
    assert quote.text == "The client works unchanged with this key and this address"


def test_a_question_inside_code_answers_nothing() -> None:
    example = "Ask so:\n\n```sh\nask 'Where is the red door?' # and wait\n```\n"
    assert answer("Where is the red door?", example) == NOTHING_FITS
    assert answer("Where is the red door?", example, "The red door is upstairs.") == "The red door is upstairs. [ID:1]"
    assert "ask 'Where" in answer("How do I ask and wait?", example)


TABLE = """| variable | default | meaning |
| --- | --- | --- |
| `PORT` | `9380` | where it listens |
| `HOST` | `127.0.0.1` | whose address it has |
"""


def test_a_tables_rows_are_quoted_without_their_outer_bars() -> None:
    assert [quote.text for quote in quotes_of(TABLE)] == [
        "`PORT` | `9380` | where it listens", "`HOST` | `127.0.0.1` | whose address it has",
    ]
    assert [quote.text for quote in quotes_of("| a row | without | a head |")] == ["a row | without | a head"]


def test_the_names_of_a_tables_columns_count_for_its_rows() -> None:
    prose = "The default is best. A port is where ships are."
    assert answer("What is the default port?", prose, TABLE).startswith("`PORT` | `9380`")


def test_a_row_counts_less_where_something_else_is_asked_for_than_what_it_is_about() -> None:
    table = "| metric | meaning |\n| --- | --- |\n| `build_info` | version, Python, database |\n"
    assert answer("Which Python version?", table, "Python of version 3.11 runs it.").startswith("Python of version 3")
    assert answer("What is build_info?", table, "Python of version 3.11 runs it.").startswith("`build_info` | version")


def test_a_row_that_begins_with_no_name_comes_with_those_of_its_columns() -> None:
    table = "| where | there | here |\n| --- | --- | --- |\n| deleted chats | stay for ever | are erased |\n"
    told = answer("What about deleted chats?", table)
    assert told == "where | there | here [ID:0]\n\ndeleted chats | stay for ever | are erased [ID:0]"


def test_the_sentence_that_says_what_a_thing_is_comes_before_all_others() -> None:
    text = "Ask a slot. The slot of slots! A slot is a row. `SLOT_SIZE` is a number."
    assert answer("What is a slot?", text).startswith("A slot is a row.")
    assert answer("Was ist ein Slot?", "Nimm den Slot!", text).startswith("A slot is a row. [ID:1]")


def test_headings_count_for_the_sentences_below_them() -> None:
    below = Document("c", "Any server will do for it.", {"heading": "Guide > Connect a model"})
    assert answer("How do I connect a model?", "Models are many and good.", below).startswith("Any server will do")
    named = Document("c", "Any server will do for it.", {"document_name": "connecting-models.md"})
    assert answer("How do I connect a model?", "Doors are closed.", named) == "Any server will do for it. [ID:1]"


def test_code_is_quoted_where_steps_are_asked_for_or_nothing_else_has_the_words() -> None:
    text = "Nobody knows which lock the door has.\n\n```\nlock the door\n```\n\n```\nunlock --gate\n```\n"
    assert "```\nlock the door\n```" in answer("How do I lock the door?", text)
    assert answer("Which lock has the door?", text) == "Nobody knows which lock the door has. [ID:0]"
    assert answer("Does unlock have a gate?", text) == "```\nunlock --gate\n```\n [ID:0]"


def test_a_number_is_preferred_where_one_is_asked_for() -> None:
    text = "The lease ends some day. The lease is 15 seconds long."
    assert answer("How long is the lease?", text).startswith("The lease is 15")
    assert answer("How long is the lease?", "The lease of BM25 ends.", text).startswith("The lease is 15")


@pytest.mark.parametrize("question", ["Does it crash?", "crashing", "What happens when the server crashed?"])
def test_finds_other_forms_of_a_word(question: str) -> None:
    assert answer(question, "All is well here. It crashes rarely, they say.") == "It crashes rarely, they say. [ID:0]"


def test_nearly_equal_sentences_are_quoted_together_and_no_more_than_three() -> None:
    texts = [f"The old door number {n} is red." for n in range(6)]
    assert len(quoted(answer("Which door is red?", *texts))) == MOST_QUOTES
    assert len(quoted(answer("Which old door is red and locked?", *texts))) == 1


def test_the_better_passage_wins_between_sentences_that_are_nearly_equal() -> None:
    answered = answer("Which door?", "Some doors are red.", "Nothing is here.", "The door is blue.")
    assert answered.startswith("Some doors are red. [ID:0]")


def test_the_best_quote_comes_first_wherever_it_stands() -> None:
    text = "The door is old. Nobody came. The old door is red and heavy."
    assert answer("Which old door is red and heavy?", "The door is white.", text).startswith("The old door is red")


def test_a_short_sentence_wins_over_a_long_one() -> None:
    long = f"The door is red {'and so on ' * 30}."
    assert answer("Which door?", f"{long} The door is blue.") == "The door is blue. [ID:0]"


def test_cuts_sentences_of_languages_without_spaces() -> None:
    text = "备份很简单。服务器运行时可以复制文件。「真的吗？」他问。"
    assert [quote.text for quote in quotes_of(text)][:2] == ["备份很简单。", "服务器运行时可以复制文件。"]
    assert answer("怎么复制文件", text) == "服务器运行时可以复制文件。 [ID:0]"


def test_a_long_gap_in_a_passage_takes_no_time() -> None:
    passage = Document("gap", "The pump moves water" + " " * 20_000 + "and oil.")
    began = time.monotonic()
    best_quotes("What does the pump move?", [passage])
    assert time.monotonic() - began < 0.5


def test_says_the_same_once() -> None:
    assert answer("Where was the server moved?", NOTES, NOTES).count("moved to Berlin") == 1


def test_says_how_to_set_a_model_where_nothing_fits() -> None:
    assert answer("How deep is the ocean?", GUIDE) == answer("Why?") == NOTHING_FITS
    assert answer("Who are you?", "You are who you are.") == NOTHING_FITS
    assert answer("Can I log in with Google?", "The log has a line for each door. It is kept. The door is red.",
                  "A log is a file. Nobody reads it in time.") == NOTHING_FITS
    assert "CHATKEEP_MODEL_BASE_URL" in NOTHING_FITS and "CHATKEEP_MODEL_NAME" in NOTHING_FITS


def test_a_question_in_another_language_finds_names() -> None:
    assert answer("Wo liegen die Logs?", "Logs are lines on standard error.").startswith("Logs are lines")
    assert answer("Where do logs lie?", "Die Logs sind Zeilen.").startswith("Die Logs")
    assert answer("Where do logs lie and dream?", "Logs are lines on standard error.") == NOTHING_FITS


def test_leaves_the_marks_out_where_citing_is_off() -> None:
    assert answer("Copy the database?", GUIDE, quote=False) == "Copy the database file while the server runs."


def test_streams_word_by_word_and_counts_them() -> None:
    *words, end = ExtractiveChatModel().stream(ModelRequest([], "copy database", [Document("c", GUIDE)]))
    assert [event.text for event in words if isinstance(event, TextDelta)][:3] == ["Copy", " the", " database"]
    assert isinstance(end, End) and end.usage is not None
    assert end.usage.completion_tokens == len(words)
    assert end.usage.prompt_tokens > 10


@pytest.mark.parametrize("text", [
    "hi", "Hello!", "Hey there 👋", "Good morning everyone", "thanks", "Thank you very much!", "Thanks a lot, hi again",
    "What's up?", "Hallo zusammen", "Grüß Gott", "Vielen Dank!", "Wie geht's?", "Bonjour, ça va ?", "Merci beaucoup",
    "¡Hola! ¿Qué tal?", "Buenos días", "muchas gracias", "你好！", "您好，谢谢", "早上好",
    "こんにちは。", "ありがとうございます！", "안녕하세요!", "안녕하세요, 반갑습니다", "감사합니다.",
])
def test_knows_greetings_and_thanks(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", [
    "", "?", "👋", "there", "today", "hi, how do I make a backup?", "thanks, and the price?", "Hilfe", "hello world",
    "How are backups made?", "你好，怎么备份", "ありがとうとは", "say hello", "hi " * 50,
    "안녕하세요, 백업은 어떻게 하나요?",
])
def test_does_not_take_a_question_for_small_talk(text: str) -> None:
    assert not is_small_talk(text)
