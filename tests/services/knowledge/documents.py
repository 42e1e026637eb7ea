"""Documents that tests read, made as people's programs make them."""

import io
import zlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, PageTemplate, Paragraph, SimpleDocTemplate

BODY = getSampleStyleSheet()["BodyText"]


def drawn(*pages: Sequence[tuple[float, float, str]], **options: Any) -> bytes:
    """A PDF of these texts: each with its left and its baseline, from the page's bottom left corner."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4, **options)
    for page in pages:
        for left, bottom, text in page:
            canvas.drawString(left, bottom, text)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def outlined(chapters: Sequence[tuple[str, int, str]]) -> bytes:
    """A PDF with a page a chapter: its title, which is in the outline on this level, and its text."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4)
    for place, (title, level, text) in enumerate(chapters):
        canvas.bookmarkPage(f"p{place}", fit="XYZ", left=72, top=760)
        canvas.addOutlineEntry(title, f"p{place}", level)
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(72, 740, title)
        paragraph = Paragraph(text, BODY)
        paragraph.wrapOn(canvas, 450, 600)
        paragraph.drawOn(canvas, 72, 700 - paragraph.height)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def titled(*pages: Sequence[tuple[int | None, str]]) -> bytes:
    """A PDF of these lines a page; those with a level are in the outline."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4)
    for lines in pages:
        for place, (level, text) in enumerate(lines):
            canvas.drawString(72, 740 - 30 * place, text)
            if level is not None:
                canvas.bookmarkPage(text)
                canvas.addOutlineEntry(text, text, level)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def in_columns(*paragraphs: str) -> bytes:
    """A PDF of two justified columns."""
    file = io.BytesIO()
    frames = [Frame(left, 400, 220, 300, id=str(left)) for left in (60, 310)]
    BaseDocTemplate(file, pageTemplates=[PageTemplate(frames=frames)]).build(
        [Paragraph(text, BODY) for text in paragraphs]
    )
    return file.getvalue()


def typeset(*parts: Flowable) -> bytes:
    """A PDF of these parts, one below the other."""
    file = io.BytesIO()
    SimpleDocTemplate(file, pagesize=A4).build(list(parts))
    return file.getvalue()


def scanned() -> bytes:
    """A PDF that is one picture."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4)
    canvas.drawImage(ImageReader(Image.new("RGB", (60, 80), "grey")), 0, 0, *A4)
    canvas.showPage()
    canvas.save()
    return file.getvalue()


def raw_pdf(*objects: bytes) -> bytes:
    """A PDF of these objects, the first one its catalog."""
    bodies = [b"%d 0 obj\n%b\nendobj\n" % (number, text) for number, text in enumerate(objects, 1)]
    places = list(accumulate((len(body) for body in bodies), initial=len(b"%PDF-1.4\n")))
    table = b"".join(b"%010d 00000 n \n" % place for place in places[:-1])
    count = len(bodies) + 1
    return (
        b"%PDF-1.4\n" + b"".join(bodies) + b"xref\n0 %d\n0000000000 65535 f \n%b" % (count, table)
        + b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (count, places[-1])
    )


def inflated(megabytes: int, text: bytes = b" ") -> bytes:
    """A small PDF whose page becomes this large when it is unpacked."""
    stream = zlib.compress(b"BT /F1 9 Tf 9 9 Td " + text * (megabytes * 1_000_000 // len(text)) + b"ET", 1)
    return raw_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%b\nendstream" % (len(stream), stream),
    )
