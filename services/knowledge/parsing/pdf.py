"""PDF page by page: a passage never spans two, stands under the outline's titles and knows where it is.

pdfium says which characters stand where; `layout` makes paragraphs of them.
"""

import ctypes
import re
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from math import floor, inf

import pypdfium2.raw as pdfium
from pypdfium2 import PdfBookmark, PdfDocument, PdfiumError, PdfPage, PdfTextPage

from services.errors import Unreadable
from services.knowledge.parsing.columns import in_reading_order
from services.knowledge.parsing.layout import Line, join, paragraphs_of, rectangles, with_rows
from services.knowledge.parsing.passages import TITLE_LENGTH, Passage, pack

_Area = tuple[float, float, float, float]  # left, right, top, bottom, in points from the page's top left corner

PAGES = 5_000
_BOOKMARKS = 20_000
_FINE = 100  # pdfium tells places in whole numbers: of hundredths of a point
_LINE = re.compile(r"[^\r\n\x02]+\x02?")  # pdfium writes \x02 for the hyphen at a line's end
_REPLACED = dict(zip(range(0xFB00, 0xFB07), ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True)) | {
    0xF0B7: "•", 0xA0: " ", 0xAD: "", 0x200B: "", 0xFFFE: "", 0xFFFF: "",
} | dict.fromkeys((*range(9), 11, 12, *range(14, 32)), "")
_MEANINGLESS = re.compile("[\x00-\x01\x03-\x08\x0e-\x1f\ufffd\ue000-\uf8ff]")
_one_at_a_time = threading.Lock()  # pdfium knows no threads


@dataclass(frozen=True, slots=True)
class _Mark:
    """A title of the outline with those above it, and where on its page it stands, if it says so."""

    path: tuple[str, ...]
    place: tuple[float, float] | None


@dataclass(slots=True)
class _Section:
    """The lines of a page under one title."""

    path: tuple[str, ...]
    lines: list[Line] = field(default_factory=list)


def passages_of(content: bytes) -> Iterator[Passage]:
    """A PDF's passages in order. Raises Unreadable."""
    with _one_at_a_time, closing(_opened(content)) as document:
        if not len(document):
            raise Unreadable("The PDF is broken: it has no pages.")
        if len(document) > PAGES:
            raise Unreadable(f"The PDF has {len(document):,} pages; up to {PAGES:,} can be read, so split it.")
        yield from _passages(document)


def _opened(content: bytes) -> PdfDocument:
    try:
        return PdfDocument(content)
    except PdfiumError as error:
        if error.err_code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            raise Unreadable("The PDF is locked with a password; save it without one and add it again.") from error
        raise Unreadable("The PDF is broken: it can't be opened.") from error


def _passages(document: PdfDocument) -> Iterator[Passage]:
    marks = _marks(document)
    path: tuple[str, ...] = ()
    read = broken = 0
    for index in range(len(document)):
        sections = [_Section(path)]
        try:
            with closing(document[index]) as page, closing(page.get_textpage()) as textpage:
                lines = list(with_rows(in_reading_order(list(_lines(page, textpage)))))
                sections = _sections(page, lines, marks[index], path)
        except PdfiumError:
            broken += 1  # the others can still be read
        path = sections[-1].path
        for section in sections:
            for passage in _cut(section, index + 1):
                read += 1
                yield passage
    if broken == len(document):
        raise Unreadable("The PDF is broken: none of its pages can be read.")
    if not read:
        raise Unreadable("The PDF has no text, only pictures of it; run text recognition (OCR) over it first.")


def _marks(document: PdfDocument) -> dict[int, list[_Mark]]:
    """The outline's titles by the page they stand on, from 0."""
    marks: dict[int, list[_Mark]] = defaultdict(list)
    path: tuple[str, ...] = ()
    for bookmark in islice(document.get_toc(), _BOOKMARKS):
        path = (*path[: bookmark.level], _title(bookmark))
        destination = bookmark.get_dest()
        page = None if destination is None else destination.get_index()
        if destination is not None and page is not None:
            marks[page].append(_Mark(path, _place(*destination.get_view())))
    return marks


def _title(bookmark: PdfBookmark) -> str:
    try:
        title: str = bookmark.get_title()
    except UnicodeDecodeError:
        return ""
    return " ".join(title.translate(_REPLACED).split())[:TITLE_LENGTH]


def _place(mode: int, view: list[float]) -> tuple[float, float] | None:
    if mode == pdfium.PDFDEST_VIEW_XYZ and len(view) > 1:
        return view[0], view[1]
    return (0, view[0]) if mode in (pdfium.PDFDEST_VIEW_FITH, pdfium.PDFDEST_VIEW_FITBH) and view else None


def _lines(page: PdfPage, textpage: PdfTextPage) -> Iterator[Line]:
    """A page's lines in reading order; none where its font doesn't say which letters it shows."""
    codes = [pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(textpage.count_chars())]
    text = "".join(chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd" for code in codes)
    if len(_MEANINGLESS.findall(text)) * 2 > len(text):
        return
    for match in _LINE.finditer(text):
        words, is_hyphenated = _words(match[0])
        if words:
            pieces = _pieces(page, textpage, match.start(), len(match[0]))
            line = Line(words, *_around(pieces), is_hyphenated)
            gaps = list(_gaps(pieces, line.height))
            yield replace(line, cells=_cells(page, textpage, match, line, gaps)) if gaps else line


def _words(found: str) -> tuple[str, bool]:
    """What a line says, and whether a word is broken at its end."""
    is_hyphenated = found[-1:] in ("\x02", "\xad")
    return " ".join(found.translate(_REPLACED).split()) + ("-" if is_hyphenated else ""), is_hyphenated


def _pieces(page: PdfPage, textpage: PdfTextPage, begin: int, count: int) -> list[_Area]:
    """The areas of a line's pieces.

    The first letter's whole box is one: of letters alone, a line without ascenders would be lower.
    """
    pieces = []
    loose = pdfium.FS_RECTF()
    if pdfium.FPDFText_GetLooseCharBox(textpage.raw, begin, loose):
        pieces.append(_area(page, loose.left, loose.top, loose.right, loose.bottom))
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    for index in range(pdfium.FPDFText_CountRects(textpage.raw, begin, count)):
        if pdfium.FPDFText_GetRect(textpage.raw, index, left, top, right, bottom):
            pieces.append(_area(page, left.value, top.value, right.value, bottom.value))
    return pieces


def _area(page: PdfPage, left: float, top: float, right: float, bottom: float) -> _Area:
    xs, ys = zip(_from_top_left(page, left, top), _from_top_left(page, right, bottom), strict=True)
    return min(xs), max(xs), min(ys), max(ys)


def _around(pieces: Sequence[_Area]) -> _Area:
    lefts, rights, tops, bottoms = zip(*pieces, strict=True) if pieces else ((0.0,),) * 4
    return min(lefts), max(rights), min(tops), max(bottoms)


def _gaps(pieces: Sequence[_Area], width: float) -> Iterator[tuple[float, float]]:
    """From where to where nothing stands between the pieces, if that is wider."""
    reached = inf
    for left, right, _, _ in sorted(pieces):
        if left - reached > width:
            yield reached, left
        reached = right if reached == inf else max(reached, right)


def _cells(
    page: PdfPage, textpage: PdfTextPage, match: re.Match[str], line: Line, gaps: Sequence[tuple[float, float]]
) -> tuple[Line, ...]:
    """The parts of a line between its gaps; none where its letters don't go from left to right."""
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    said, part = [""] * (len(gaps) + 1), 0
    for index, letter in enumerate(match[0], match.start()):
        if not letter.isspace() and pdfium.FPDFText_GetCharBox(textpage.raw, index, left, right, bottom, top):
            place, _ = _from_top_left(page, (left.value + right.value) / 2, top.value)
            before, part = part, bisect_left(gaps, (place, 0.0))
            if part < before:
                return ()
        said[part] += letter
    lefts, rights = [line.left, *(end for _, end in gaps)], [*(begin for begin, _ in gaps), line.right]
    parts = zip(map(_words, said), lefts, rights, strict=True)
    cells = [Line(words, begin, end, line.top, line.bottom, is_last) for (words, is_last), begin, end in parts]
    return tuple(cells) if all(cell.words for cell in cells) else ()


def _from_top_left(page: PdfPage, x: float, y: float) -> tuple[float, float]:
    """A place in PDF's coordinates as it is seen: the page cropped, turned, and measured from its top left."""
    width, height = page.get_size()
    across, down = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDF_PageToDevice(page, 0, 0, round(width * _FINE), round(height * _FINE), 0, x, y, across, down)
    # what isn't on the page is at its edge
    return (
        min(max(round(across.value / _FINE, 1), 0.0), floor(width * 10) / 10),
        min(max(round(down.value / _FINE, 1), 0.0), floor(height * 10) / 10),
    )


def _sections(page: PdfPage, lines: list[Line], marks: Sequence[_Mark], path: tuple[str, ...]) -> list[_Section]:
    """A page's lines by title; the first ones still stand under the title of the page before."""
    sections = [_Section(path)]
    begin = 0
    for mark in marks:
        end = _line_of(page, lines, mark, begin)
        section = sections[-1]
        section.lines += lines[begin:end]
        begin = end
        is_title = mark.path[: len(section.path)] == section.path and len(section.lines) <= 2
        if is_title or len(section.lines) <= 1:
            section.path = mark.path  # a title or a page's header says nothing alone
        else:
            sections.append(_Section(mark.path))
    sections[-1].lines += lines[begin:]
    return sections


def _line_of(page: PdfPage, lines: list[Line], mark: _Mark, begin: int) -> int:
    """Which line a title of the outline stands in: the one that says it, else by its height on the page."""
    title = _squeezed(mark.path[-1])
    for index in range(begin, len(lines)):
        words = _squeezed(lines[index].words)
        if title and (words.endswith(title) or (len(words) > 8 and title.startswith(words))):
            return index
    if mark.place is None:
        return begin
    _, height = _from_top_left(page, *mark.place)
    return next((index for index in range(begin, len(lines)) if lines[index].bottom > height), len(lines))


def _squeezed(text: str) -> str:
    return "".join(text.split()).casefold()


def _cut(section: _Section, page: int) -> Iterator[Passage]:
    """A section's passages, each with the areas of its lines."""
    blocks, begins = list[str](), list[int]()
    length = 0
    for paragraph in paragraphs_of(section.lines):
        text, places = join(paragraph, section.lines)
        begins += (length + place for place in places)
        blocks.append(f"{text}\n\n")
        length += len(blocks[-1])
    heading = " > ".join(title for title in section.path if title)
    lines = list(zip(section.lines, begins, [*begins[1:], length][: len(begins)], strict=True))
    for first, last, content in _with_title(pack(blocks)):
        covered = [line for line, begin, end in lines if begin < last and end > first]
        yield Passage(content, heading, page, tuple((page, *area) for area in rectangles(covered)))


def _with_title(pieces: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The pieces of a section; a title alone goes to the one behind it."""
    if len(pieces) < 2 or len(pieces[0][2]) > TITLE_LENGTH:
        return pieces
    (begin, _, title), (_, end, content), *others = pieces
    return [(begin, end, f"{title}\n\n{content}"), *others]
