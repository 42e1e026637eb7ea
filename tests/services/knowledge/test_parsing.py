"""Texts become passages: cut where a reader would, and with every character still there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.knowledge.parsing import LIMIT, Passage, parse


def squeezed(text: str) -> str:
    return "".join(text.split())


def sentences(count: int) -> str:
    return " ".join(f"This is sentence number {number}." for number in range(count))


def test_cuts_markdown_at_its_headings_and_names_the_path() -> None:
    text = f"Before.\n\n# A *b*\n\n{'Long. ' * 50}\n\n## `C`\n\nC's text.\n\n# D\n\nD's text.\n"
    assert [(passage.heading, passage.content.split("\n")[0]) for passage in parse("x.md", text)] == [
        ("", "Before."), ("A b", "# A *b*"), ("A b > C", "## `C`"), ("D", "# D"),
    ]


def test_joins_a_bare_title_to_its_first_subsection() -> None:
    passages = parse("x.MD", "# A\n\n## B\n\nText.\n\n## C\n\nMore.\n")
    assert passages == [Passage("# A\n\n## B\n\nText.", "A > B"), Passage("## C\n\nMore.", "A > C")]


def test_takes_no_heading_out_of_code_lists_or_other_kinds_of_text() -> None:
    text = "# A\n\n```\n# no heading\n```\n\n- # neither\n"
    assert [passage.heading for passage in parse("x.md", text)] == ["A"]
    assert parse("x.txt", "# A\n") == [Passage("# A")]


def test_climbs_back_when_levels_are_skipped() -> None:
    body = "x " * 150
    text = f"### A\n{body}\n# B\n{body}\n#### C\n{body}\n## D\n{body}\n"
    assert [passage.heading for passage in parse("x.md", text)] == ["A", "B", "B > C", "B > D"]


def test_keeps_front_matter_and_link_definitions_as_text() -> None:
    passages = parse("x.md", "---\ntitle: T\n---\n\n# A\n\n[x]: https://x.example\n\nSee [x].\n")
    assert [passage.heading for passage in passages] == ["", "A"]
    assert "title: T" in passages[0].content
    assert "[x]: https://x.example" in passages[1].content


def test_puts_paragraphs_together_up_to_the_limit() -> None:
    passages = parse("x.txt", "\n\n".join(f"{number} " + "word " * 100 for number in range(5)))
    assert [passage.content[0] for passage in passages] == ["0", "2", "4"]
    assert all(len(passage.content) <= LIMIT for passage in passages)


def test_cuts_a_long_paragraph_between_sentences() -> None:
    passages = parse("x.txt", sentences(100))
    assert len(passages) > 1
    assert all(passage.content.endswith(".") for passage in passages)


def test_leaves_a_code_block_whole_if_it_fits() -> None:
    code = "```python\n" + "call(argument)\n\n" * 60 + "```"
    passages = parse("x.md", f"# A\n\n{sentences(20)}\n\n{code}\n\n{sentences(20)}\n")
    assert sum(code in passage.content for passage in passages) == 1


def test_repeats_the_path_on_every_part_of_a_long_section() -> None:
    passages = parse("x.md", f"# A\n\n{sentences(100)}\n")
    assert len(passages) > 1
    assert {passage.heading for passage in passages} == {"A"}
    assert passages[0].content.startswith("# A\n\nThis is sentence number 0.")


def test_takes_a_long_underlined_paragraph_for_text() -> None:
    passages = parse("x.md", f"{sentences(100)}\n---\n\nRest.\n")
    assert all(len(passage.content) <= LIMIT for passage in passages)
    assert all(len(passage.heading) <= 120 for passage in passages)


@pytest.mark.parametrize("text", ["", " \n\t\n", "\r\n\r\n"])
@pytest.mark.parametrize("name", ["x.md", "x.txt"])
def test_makes_nothing_of_nothing(name: str, text: str) -> None:
    assert parse(name, text) == []


PIECES = st.sampled_from([
    "# A\n", "## B\n", "####### no\n", "text\n", "\n", "\r\n", "\r", "\x0c", "\u2028", "\t", " ",
    "    code\n", "```\n", "~~~\n", "---\n", "===\n", "> q\n", "- item\n", "1. n\n", "[x]: y\n", "<!-- c -->\n",
    "| a |\n|---|\n", "title: x\n", "word " * 100, "x" * 300, "A sentence. " * 60,
])


@given(st.lists(PIECES | st.text(max_size=20), max_size=30), st.sampled_from(["x.md", "x.txt"]))
def test_loses_no_character_and_keeps_the_limit(pieces: list[str], name: str) -> None:
    text = "".join(pieces)
    passages = parse(name, text)
    assert squeezed("".join(passage.content for passage in passages)) == squeezed(text)
    assert all(len(passage.content) <= LIMIT + 200 for passage in passages)
