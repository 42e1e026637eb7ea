"""Files of every kind become passages, or are refused with a sentence that says why."""

import codecs
import gzip
import io
import zipfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reportlab.lib.pdfencrypt import StandardEncryption

from services.errors import InvalidData
from services.knowledge.parsing import (
    LIMIT,
    Passage,
    ReaderProcesses,
    Unreadable,
    decoding,
    passages,
    pdf,
    read,
    reading,
)
from tests.services.knowledge.documents import drawn, in_columns, inflated, outlined, raw_pdf, scanned, titled

SENTENCE = "The committee decided that every application must be answered within four weeks of its arrival. "
BOOK = outlined([
    ("1 Start", 0, SENTENCE * 3), ("1.1 Inner", 1, SENTENCE * 30), ("2 End", 0, SENTENCE),
])
PAGE = "<!doctype html><title>T</title><p>Größe</p>"


@pytest.fixture(scope="module")
def readers() -> Iterator[ReaderProcesses]:
    readers = ReaderProcesses()
    yield readers
    readers.close()


def refusal(name: str, content: bytes) -> str:
    with pytest.raises(Unreadable) as refused:
        read(name, content)
    assert isinstance(refused.value, InvalidData)
    assert refused.value.message[0].isupper() and refused.value.message.endswith(".")
    return refused.value.message


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "<w:document/>")
    return file.getvalue()


@pytest.mark.parametrize("name", ["book.pdf", "book.txt", "book.html"])
def test_reads_a_pdf_page_by_page_under_its_outline_whatever_its_name(name):
    found = read(name, BOOK)
    assert [(passage.page, passage.heading) for passage in found] == [
        (1, "1 Start"), *[(2, "1 Start > 1.1 Inner")] * 3, (3, "2 End"),
    ]
    assert found[0].content == f"1 Start\n\n{(SENTENCE * 3).strip()}"
    assert found[1].content.startswith("1.1 Inner\n\nThe committee")
    assert " ".join(passage.content for passage in found[1:4]).count(SENTENCE.strip()) == 30
    assert all(len(passage.content) <= LIMIT + 200 for passage in found)


def test_says_where_on_the_page_a_passage_of_a_pdf_is():
    for passage in read("book.pdf", BOOK):
        assert len(passage.positions) == 1
        page, left, right, top, bottom = passage.positions[0]
        assert page == passage.page
        assert 71 <= left < right <= 72 + 450 and 0 < top < bottom <= 842 - 100
    title = read("book.pdf", BOOK)[0].positions[0]
    assert 842 - 740 - 18 - 4 < title[3] < 842 - 740 - 9, "the title's top: 740 points above the lower edge"


def test_titles_and_headers_of_a_page_are_no_passages_of_their_own():
    found = read("x.pdf", titled(
        [(None, "The header"), (0, "1 One"), (1, "1.1 Two"), (None, "Words.")],
        [(None, "The header"), (0, "2 Three"), (None, "More."), (0, "3 Four"), (None, "End.")],
    ))
    assert [(passage.heading, passage.content) for passage in found] == [
        ("1 One > 1.1 Two", "The header\n\n1 One\n\n1.1 Two\n\nWords."),
        ("2 Three", "The header\n\n2 Three\n\nMore."), ("3 Four", "3 Four\n\nEnd."),
    ]


def test_keeps_columns_apart_in_words_and_places():
    left, right = read("x.pdf", in_columns(SENTENCE * 4, SENTENCE * 6, SENTENCE * 7))
    assert left.content == f"{SENTENCE * 4}".strip() + "\n\n" + f"{SENTENCE * 6}".strip()
    assert right.content == (SENTENCE * 7).strip()
    assert left.positions[0][2] < right.positions[0][1]


def test_a_paragraph_goes_on_in_the_next_column():
    _, passage = read("x.pdf", in_columns(SENTENCE * 9, SENTENCE * 6))
    assert passage.content == (SENTENCE * 6).strip()
    left, right = passage.positions
    assert left[2] < right[1], "an area in either column"


def test_joins_what_was_broken_to_fit_and_nothing_else():
    [passage] = read("x.pdf", drawn([
        (72, 700, "This line ends with a hyphen-"), (72, 688, "ated word, and the well-"),
        (72, 676, "Known one keeps it. Short."), (72, 664, "- an item of a list"),
        (72, 652, "- and another one"), (72, 610, "A paragraph of its own"),
    ]))
    assert passage.content == (
        "This line ends with a hyphenated word, and the well-Known one keeps it. Short.\n- an item of a list\n"
        "- and another one\n\nA paragraph of its own"
    )


def test_measures_a_page_as_it_is_seen():
    turned = drawn([(72, 500, "turned")], cropBox=(50, 50, 500, 550)).replace(b"/Rotate 0", b"/Rotate 90")
    [(page, left, right, top, bottom)] = read("x.pdf", turned)[0].positions
    assert page == 1 and (top, bottom - top > right - left) == (22, True), "written downwards, 72 - 50 from the top"
    assert 500 - 50 - 5 < left < right < 500 - 50 + 13


def test_pages_without_text_or_broken_ones_leave_the_others():
    found = read("x.pdf", drawn([(72, 700, "one")], [], [(72, 700, "three")]))
    assert [(passage.page, passage.content) for passage in found] == [(1, "one"), (3, "three")]
    text = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1<</Type/Font" \
        b"/Subtype/Type1/BaseFont/Helvetica>>>>>>>>"
    found = read("x.pdf", raw_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[9 0 R 3 0 R]/Count 2>>", text,
        b"<</Length 35>>stream\nBT /F1 9 Tf 9 9 Td (still here) Tj ET\nendstream",
    ))
    assert [(passage.page, passage.content) for passage in found] == [(2, "still here")]


def test_reads_a_pdf_that_only_its_owner_may_change():
    content = drawn([(72, 700, "open to all")], encrypt=StandardEncryption("", "owner", canCopy=0))
    assert [passage.content for passage in read("x.pdf", content)] == ["open to all"]


@pytest.mark.parametrize(("content", "reason"), [
    (drawn([(72, 700, "x")], encrypt=StandardEncryption("user", "owner")), "password"),
    (BOOK[: len(BOOK) // 2], "broken"),
    (BOOK[:200], "broken"),
    (b"%PDF-1.7\n" + b"rubbish" * 500, "broken"),
    (b"%PDF-", "broken"),
    (raw_pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>"), "broken"),
    (raw_pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R]/Count 1>>"), "broken"),
    (scanned(), "OCR"),
])
def test_refuses_a_pdf_that_gives_no_text_and_says_why(content, reason):
    assert reason in refusal("x.pdf", content)


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("x.txt", b"", "empty"),
    ("x.md", b" \r\n\t", "empty"),
    ("x.md", codecs.BOM_UTF8, "empty"),
    ("x.pdf", zipped(), "ZIP"),
    ("x.html", zipped(), "Word"),
    ("x.md", gzip.compress(b"# A\n\ntext"), "gzip"),
    ("x.txt", b"\x89PNG\r\n\x1a\n" + bytes(50), "PNG"),
    ("x.txt", b"{\\rtf1\\ansi text}", "RTF"),
    ("x.txt", b"MZ\x90\x00\x03" + bytes(50), "isn't text"),
    ("x.html", b"<html>\x00<p>text", "isn't text"),
    ("x.txt", bytes(range(1, 128)) * 9, "isn't text"),
    ("x.txt", "Größe".encode("latin-1"), "isn't UTF-8 (byte 3)"),
    ("x.txt", "Größe".encode("utf-16-le"), "isn't text"),
    ("x.txt", codecs.BOM_UTF16_LE + b"\x00\xd8a", "UTF-16-LE"),
    ("x.html", b"<meta charset=utf-8><p>Gr\xf6\xdfe", "utf-8"),
    ("x.html", b"<meta charset=unicode_escape><p>\\x41\xff", "unicode_escape"),
    ("x.html", b"<p>Gr\xf6\xdfe", "isn't UTF-8"),
    ("x.html", b"<html><script>write('all of it')</script>", "no text"),
])
def test_refuses_what_is_no_text_whatever_its_name(name, content, reason):
    assert reason in refusal(name, content)


@pytest.mark.parametrize("content", [
    PAGE.encode(), PAGE.encode("utf-8-sig"), codecs.BOM_UTF16_LE + PAGE.encode("utf-16-le"),
    codecs.BOM_UTF16_BE + PAGE.encode("utf-16-be"), codecs.BOM_UTF32_LE + PAGE.encode("utf-32-le"),
    *(PAGE.replace("<title>", f"{meta}<title>").encode("cp1252") for meta in (
        "<meta charset=latin-1>", "<META CHARSET='ISO-8859-1'/>",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">',
    )),
])
@pytest.mark.parametrize("name", ["x.html", "x.htm", "x", "x.md"])
def test_reads_html_in_the_encoding_that_it_says(name, content):
    assert read(name, content) == [Passage("# T\n\nGröße", "T")]


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("x.md", "# Ä\n\ntext", [Passage("# Ä\n\ntext", "Ä")]),
    ("x.txt", "# Ä\r\n", [Passage("# Ä")]),
    ("notes", "about <html> and %PDF-1.7", [Passage("about <html> and %PDF-1.7")]),
    ("x.py", "if a < b:\n    pass", [Passage("if a < b:\n    pass")]),
])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_reads_text_and_markdown_as_they_are_written(name, text, expected, encoding):
    assert read(name, text.encode(encoding)) == expected


ESCAPED = [
    ("iso-2022-jp", "iso2022_jp", "日本語のテキスト ~ abc"), ("ISO-2022-JP", "iso2022_jp_ext", "ｶﾀｶﾅ と \u00a5"),
    ("csISO2022JP", "iso2022_jp", "日本語"), ("iso-2022-jp-2", "iso2022_jp_2", "日本 한국"),
    ("iso-2022-jp-3", "iso2022_jp_3", "日本語①"), ("ISO-2022-KR", "iso2022_kr", "한국어 글 ~"),
    ("csiso2022kr", "iso2022_kr", "한국어"), ("hz-gb-2312", "hz", "中文 ~ text"), ("HZ", "hz", "中文"),
]


@pytest.mark.parametrize(("charset", "codec", "text"), ESCAPED)
@pytest.mark.parametrize("markup", [
    "<meta charset={}><p>{}", "<html><META CHARSET='{}'/><p>{}",
    "<?xml version='1.0' encoding='{}'?><html><p>{}</html>",
    '<meta http-equiv="Content-Type" content="text/html; charset={}"><p>{}',
])
def test_reads_letters_written_as_ascii_in_the_encoding_that_a_page_says(charset, codec, text, markup):
    content = markup.format(charset, text).encode(codec)
    assert content.isascii()
    assert read("x.html", content) == [Passage(text)]


@pytest.mark.parametrize(("codec", "text"), [
    ("iso2022_jp", "日本語のテキスト"), ("iso2022_jp", "plain first\nthen 日本\nand plain"), ("iso2022_jp_ext", "ｶﾀｶﾅ"),
    ("iso2022_jp", "1000\u00a5"),
])
@pytest.mark.parametrize("name", ["x.txt", "x.md", "x", "x.html"])
def test_knows_iso_2022_jp_by_its_escapes(codec, text, name):
    content = text.encode(codec)
    assert content.isascii()
    [passage] = read(name, content)
    assert passage.content == (" ".join(text.split()) if name == "x.html" else text)


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("x.txt", b"\x1b$BF|K\x1b(B", "ISO-2022-JP"),
    ("x.txt", b"\x1b$B\x7f\x7f\x1b(B", "ISO-2022-JP"),
    ("x.html", b"<meta charset=iso-2022-jp><p>\x1b$BF|K\x1b(B", "iso-2022-jp"),
    ("x.html", b"<meta charset=iso-2022-cn><p>\x1b$)A\x0eVPND\x0f", "iso-2022-cn"),
    ("x.html", b"<meta charset=hz-gb-2312><p>~{V", "hz-gb-2312"),
])
def test_refuses_escapes_that_it_cannot_read(name, content, reason):
    assert reason in refusal(name, content)


@pytest.mark.parametrize(("name", "content"), [
    ("x.txt", "+ZeVnLIqe- +AGE-"), ("x.html", "<p>+ZeVnLIqe-</p>"), ("x.html", "<meta charset=utf-7><p>+ADw-b+AD4-"),
    ("x.txt", "~{VPND~} in a text that doesn't say HZ"), ("x.html", "<meta charset=utf-8><p>~{VPND~}"),
    ("x.html", "<meta charset=iso-2022-cn><p>plain ~ text"), ("build.log", "\x1b[31mred\x1b(B\x1b[m plain"),
    ("x.md", "a charset=iso-2022-kr that is only \x1b named"),
])
def test_takes_no_other_ascii_for_escapes(name, content):
    [passage] = read(name, content.encode())
    assert passage.content in content


def test_refuses_a_page_that_says_utf_7_and_is_not_utf_8():
    assert "utf-7" in refusal("x.html", b"<meta charset=utf-7><p>+ADw-\xff")


def test_knows_no_charset_that_python_does_not():
    assert all(codecs.lookup(codec) for codec in decoding._CHARSETS.values())


@pytest.mark.parametrize(("module", "limit", "name", "content", "reason"), [
    (pdf, "PAGES", "x.pdf", BOOK, "3 pages"),
    (reading, "CHARACTERS", "x.pdf", BOOK, "characters"),
    (reading, "CHARACTERS", "x.txt", b"more than a few", "characters"),
    (reading, "PASSAGES", "x.md", b"# A\n\na\n\n# B\n\nb\n\n# C\n\nc\n", "sections"),
])
def test_refuses_what_is_more_than_the_limits(monkeypatch, module, limit, name, content, reason):
    monkeypatch.setattr(module, limit, 2)
    assert reason in refusal(name, content)


def test_a_pdf_that_grows_when_it_is_unpacked_costs_no_more_than_its_limits(readers):
    bomb = inflated(300)
    assert len(bomb) < 2_000_000
    with pytest.raises(Unreadable, match="more than 200 MB of memory"):
        readers.read("x.pdf", bomb, megabytes=200)


STARTS = st.sampled_from([
    b"", b"%PDF-1.7\n1 0 obj\n", b"<html>", b"<!doctype html><table><tr>", codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE,
    b"# A\n", b"<meta charset=gb2312>", b"\x1f\x8b", b"PK\x03\x04",
])


@settings(deadline=None)
@given(
    STARTS, st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.sampled_from(["x", "x.html", "x.md"]),
)
def test_makes_passages_of_any_bytes_or_refuses_them(readers, start, rest, name):
    try:
        found = readers.read(name, start + rest)
    except Unreadable as refused:
        assert "broke down" not in refused.message
    else:
        assert all(passage.content.strip() for passage in found) and found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, len(BOOK) - 1), st.integers(0, 255)), min_size=1, max_size=40))
def test_makes_passages_of_a_damaged_pdf_or_refuses_it(readers, changes):
    damaged = bytearray(BOOK)
    for place, value in changes:
        damaged[place] = value
    try:
        found = readers.read("x.pdf", bytes(damaged), seconds=20)
    except Unreadable:
        return
    assert all(passage.page and 1 <= passage.page <= 3 for passage in found)


def test_a_piece_says_where_it_begins_and_ends():
    blocks = ["a\n\n", "b " * 700 + "\n\n", "c\n\n"]
    text = "".join(blocks)
    assert all(text[begin:end].strip("\n") == piece for begin, end, piece in passages.pack(blocks))
