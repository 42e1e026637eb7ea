"""A session's title is its question's first line, short and whole."""

import pytest

from services.titles import derive_title


@pytest.mark.parametrize(("question", "title"), [
    ("  fix\tthe   bug\nmore", "fix the bug"), ("/review the auth change", "the auth change"), ("2+2?", "2+2?"),
    ("x" * 80, "x" * 60 + "…"), ("x" * 60, "x" * 60), ("word " * 20, "word " * 11 + "word…"),
    ("a" * 60 + " b", "a" * 60 + "…"), ("a" * 59 + " bcd", "a" * 59 + "…"), ("a" * 61 + " b", "a" * 60 + "…"),
    ("/usr/bin is full", "/usr/bin is full"), ("and/or which", "and/or which"), ("/a /b see", "/b see"),
    ("如何备份服务器？", "如何备份服务器？"), ("two\r\nlines", "two"),
])
def test_a_question_makes_a_title(question: str, title: str) -> None:
    assert derive_title(question) == title


@pytest.mark.parametrize("question", ["ok", "", "  ", "/mode y", "/review", "\nbelow a blank line", "你好"])
def test_a_question_that_says_too_little_makes_none(question: str) -> None:
    assert derive_title(question) is None
