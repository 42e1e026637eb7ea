"""From bytes to the text that they surely are. What isn't text is named and refused.

An encoding that isn't said is never guessed: tried on short texts in twenty languages, the best guesser was
wrong in one of five, and a wrong letter can't be told from a right one afterwards. ISO-2022-JP says what it is by its
escapes. UTF-7 is no encoding here, as in browsers: it hides markup in plain text.
"""

import codecs
import re

from services.errors import Unreadable

_MARKS = (  # the longer ones first: UTF-16's mark begins UTF-32's
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ARCHIVE = "a ZIP archive; Word, Excel, PowerPoint and e-book files are such archives too"
_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", _ARCHIVE), (b"PK\x05\x06", _ARCHIVE), (b"PK\x07\x08", _ARCHIVE),
    (b"\x1f\x8b", "a gzip archive"), (b"BZh91AY&SY", "a bzip2 archive"), (b"\xfd7zXZ", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"), (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Word, Excel or PowerPoint file"), (b"{\\rtf", "an RTF file"),
    (b"%!PS-Adobe", "a PostScript file"), (b"\x89PNG\r\n\x1a\n", "a PNG picture"), (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF87a", "a GIF picture"), (b"GIF89a", "a GIF picture"), (b"II*\x00", "a TIFF picture"),
    (b"MM\x00*", "a TIFF picture"), (b"\x7fELF", "a program"), (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"), (b"\x00asm", "a program"), (b"SQLite format 3\x00", "an SQLite database"),
    (b"OggS\x00", "an audio file"), (b"fLaC\x00", "an audio file"), (b"ID3\x03", "an audio file"),
    (b"ID3\x04", "an audio file"),
)
_CHARSETS = {  # what a page calls them, as browsers understand it; no codec but these
    **{name: name for name in ("big5", "big5-hkscs", "cp866", "euc-jp", "gb18030", "koi8-r", "koi8-u")},
    **{f"iso-2022-jp-{number}": f"iso2022_jp_{number}" for number in (1, 2, 3, 2004)},
    **dict.fromkeys(("iso-2022-jp", "csiso2022jp"), "iso2022_jp_ext"),
    **dict.fromkeys(("iso-2022-kr", "csiso2022kr"), "iso2022_kr"), **dict.fromkeys(("hz-gb-2312", "hz"), "hz"),
    **{f"windows-{number}": f"cp{number}" for number in (874, *range(1250, 1259))},
    **{f"iso-8859-{number}": f"iso8859-{number}" for number in (*range(2, 9), 10, 13, 14, 15, 16)},
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "ascii", "us-ascii", "cp1252"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987"), "cp949"),
    "iso-8859-9": "cp1254", "iso-8859-11": "cp874", "tis-620": "cp874", "cp1251": "cp1251", "macintosh": "mac-roman",
}
_ESCAPES = (("iso-2022-", b"\x1b"), ("csiso2022", b"\x1b"), ("hz", b"~"))  # of the charsets that write all in ASCII
_JAPANESE = re.compile(rb"\x1b(?:\$[@B]|\([IJ])")  # where ISO-2022-JP leaves ASCII
_HTML_NAMES = (".html", ".htm", ".xhtml")
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL
)
_DECLARED = re.compile(
    rb"""<meta[^>]{1,500}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{1,200}?encoding\s*=\s*["']([\w.:-]+)""",
    re.IGNORECASE,
)
_START = 4096  # bytes in which a file says what it is
_CONTROLS = re.compile(r"[\x01-\x07\x0e-\x1a\x1c-\x1f]")
_SAVE = "save it as UTF-8 and add it again"


def is_html(name: str, start: bytes) -> bool:
    """Whether a file is HTML, by its name or by how it starts."""
    return name.lower().endswith(_HTML_NAMES) or bool(_HTML_START.match(start[:_START]))


def decode(name: str, content: bytes) -> str:
    """The text of a file without its byte order mark. Raises Unreadable where it isn't text, or in doubt."""
    for magic, kind in _KINDS:
        if content.startswith(magic):
            raise Unreadable(f"The file is {kind}. Text, Markdown, HTML and PDF can be read.")
    text = _marked(content)
    if text is None:
        text = _unmarked(name, content)
    if "\x00" in text or len(_CONTROLS.findall(text)) * 100 > len(text):
        raise _not_text()
    return text


def _marked(content: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return content[len(mark) :].decode(encoding)
            except UnicodeDecodeError as error:
                raise Unreadable(
                    f"The file begins as {encoding.upper()} but isn't it throughout; {_SAVE}."
                ) from error
    return None


def _unmarked(name: str, content: bytes) -> str:
    charset = _charset(name, content)
    if content.isascii():
        return _unescaped(content, charset)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if b"\x00" in content:
            raise _not_text() from error
        if not charset:
            raise Unreadable(
                f"The file isn't UTF-8 (byte {error.start + 1}) and doesn't say what it is; {_SAVE}."
            ) from error
        return _declared(content, charset)


def _charset(name: str, content: bytes) -> str:
    """What a page says that it is; nothing where it says nothing, or is no page."""
    declared = _DECLARED.search(content[:_START]) if is_html(name, content) else None
    return (declared[1] or declared[2]).decode() if declared else ""


def _unescaped(content: bytes, charset: str) -> str:
    """The text of bytes that are ASCII, and with escapes other letters."""
    for prefix, escape in _ESCAPES:
        if charset.lower().startswith(prefix) and escape in content:
            return _declared(content, charset)
    if not _JAPANESE.search(content):
        return content.decode()
    try:
        return content.decode("iso2022_jp_ext")
    except UnicodeDecodeError as error:
        raise Unreadable(f"The file has escapes of ISO-2022-JP and can't be read as that; {_SAVE}.") from error


def _declared(content: bytes, charset: str) -> str:
    try:
        return content.decode(_CHARSETS[charset.lower()])
    except (KeyError, UnicodeDecodeError) as error:
        raise Unreadable(f"The page says that it is {charset[:40]}, and can't be read as that; {_SAVE}.") from error


def _not_text() -> Unreadable:
    return Unreadable("The file isn't text. Text, Markdown, HTML and PDF can be read.")
