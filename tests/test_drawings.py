"""The drawings of docs/document.md are what their script draws, and everything in them is within their frame."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.drawings import DARK, LIGHT, drawings

DOCS = Path(__file__).parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("name", "drawn"), drawings().items())
def test_the_committed_drawing_is_what_the_script_draws(name: str, drawn: str) -> None:
    assert (DOCS / name).read_text("utf-8") == drawn, "run python docs/drawings.py"
    assert f"]({name})" in (DOCS / "document.md").read_text("utf-8")


@pytest.mark.parametrize("drawn", drawings().values(), ids=drawings())
def test_every_text_is_within_the_frame(drawn: str) -> None:
    root = ElementTree.fromstring(drawn)
    for text in root.iter(f"{SVG}text"):
        half = 3.6 * len(text.text or "")  # of its width in pixels, generously
        x = float(text.attrib["x"])
        begin, end = (x - half, x + half) if "middle" in text.attrib["class"] else (x, x + 2 * half)
        assert begin > 0 and end < float(root.attrib["width"]) + 10, text.text
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.attrib["width"]) <= float(root.attrib["width"])


def test_the_readmes_picture_is_1200_pixels_wide_and_small() -> None:
    picture = (DOCS / "page.png").read_bytes()
    assert (picture[1:4], int.from_bytes(picture[16:20])) == (b"PNG", 1200)
    assert len(picture) < 200_000 and "](docs/page.png)" in (DOCS.parent / "README.md").read_text("utf-8")


def test_both_schemes_give_the_same_names_a_colour() -> None:
    light, dark = ([pair.split(":")[0].strip() for pair in scheme.split(";")] for scheme in (LIGHT, DARK))
    assert light == dark and len(light) == 9
