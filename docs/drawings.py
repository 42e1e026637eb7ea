"""Draws document.svg and turn.svg beside this file: `python docs/drawings.py`.

Colours follow the reader's scheme; each drawing has a ground of its own, so that it reads on any page.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
LIGHT = "--ground:#fcfbf9; --ink:#24221e; --soft:#6b665c; --line:#c9c3b6; --box:#f3f0e9; " \
        "--question:#dbe7f3; --answer:#dcecd9; --slot:#f6e3c0; --mark:#2f5d8c"
DARK = "--ground:#17181b; --ink:#e5e2dc; --soft:#a09b92; --line:#4a4e57; --box:#22252a; " \
       "--question:#26415e; --answer:#2a4a33; --slot:#57431d; --mark:#8db5e2"
STYLE = f"""
svg {{ {LIGHT} }}
@media (prefers-color-scheme:dark) {{ svg {{ {DARK} }} }}
text {{ font:14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill:var(--ink) }}
.small {{ font-size:12px; fill:var(--soft) }} .bold {{ font-weight:600 }} .middle {{ text-anchor:middle }}
.clear {{ paint-order:stroke; stroke:var(--ground); stroke-width:5px }}
.mono {{ font:12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }}
.ground {{ fill:var(--ground) }} .question {{ fill:var(--question) }} .answer {{ fill:var(--answer) }}
.slot {{ fill:var(--slot) }} .box {{ fill:var(--box); stroke:var(--line) }}
.page {{ fill:var(--ground); stroke:var(--line) }} .line {{ stroke:var(--line) }} .late {{ stroke-dasharray:5 4 }}
.arrow {{ stroke:var(--mark); stroke-width:1.6; fill:none; marker-end:url(#head) }} #head path {{ fill:var(--mark) }}
"""
KINDS = {"U": "question", "A": "answer", "P": "answer", "R": "slot"}


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>'


def arrow(*points: tuple[float, float], kind: str = "") -> str:
    path = " ".join(f"{'L' if place else 'M'}{x} {y}" for place, (x, y) in enumerate(points))
    return f'<path d="{path}" class="arrow {kind}"/>'


def chips(x: float, y: float, names: str) -> Iterator[str]:
    """A row of entries or slots: `U1 A1`."""
    for name in names.split():
        yield box(x, y, 40, 26, KINDS[name[0]])
        yield text(x + 20, y + 18, name, "middle")
        x += 46


def page(x: float, y: float, title: str, entries: str, slots: str) -> Iterator[str]:
    """A page: its entries above, the slots of its ended turns below."""
    yield box(x, y, 380, 106, "page")
    yield text(x + 12, y + 21, title, "small")
    yield text(x + 12, y + 48, "message", "mono")
    yield from chips(x + 90, y + 31, entries)
    yield text(x + 12, y + 84, "reference", "mono")
    yield from chips(x + 90, y + 67, slots)


def svg(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" ' \
           'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker>'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">', f"<title>{escape(title)}</title><style>{STYLE}</style>", head,
        f'<rect width="{width}" height="{height}" rx="10" class="ground"/>', *parts, "</svg>", "",
    ])


def document() -> Iterator[str]:
    """The sealed pages of a session, its row with the open page, and the index of its entries."""
    yield box(20, 20, 420, 274)
    yield text(36, 46, "conversation_page", "bold mono")
    yield text(176, 46, "a row for each sealed page", "small")
    yield from page(40, 60, "seq 1 to 5", "P U1 A1 U2 A2", "R1 R2")
    yield from page(40, 174, "seq 6 to 7", "U3 A3", "R3")

    yield box(540, 20, 420, 274)
    yield text(556, 46, "conversation", "bold mono")
    yield text(660, 46, "a row for each session", "small")
    yield text(556, 76, "tenant_id, dialog_id, name, user_id ...", "mono")
    yield text(556, 100, "next_seq 10, message_count 9, revision ...", "mono")
    yield from page(560, 116, "the open page: each append rewrites it, so it stays small", "U4 A4", "R4")
    yield text(560, 250, "A turn's answer and its slot are written in one statement:", "small")
    yield text(560, 270, "both are there, or neither.", "small")
    yield arrow((556, 227), (424, 227))
    yield text(490, 217, "over 16 KB", "middle small")
    yield text(490, 246, "it moves whole", "middle small")

    yield box(20, 330, 940, 92)
    yield text(36, 356, "message_index", "bold mono")
    yield text(146, 356, "where each entry stands: found by its seq, by its own uid, or by its turn's id", "small")
    for place, name in enumerate(("P", "U1", "A1", "U2", "A2", "U3", "A3", "U4", "A4")):
        yield box(36 + place * 102, 370, 94, 38, KINDS[name[0]])
        yield text(83 + place * 102, 386, f"seq {place + 1}", "middle mono")
        yield text(83 + place * 102, 402, "no turn" if name == "P" else f"id of turn {name[1:]}", "middle small")
    yield arrow((230, 330), (230, 298))
    yield arrow((750, 330), (750, 298))

    for x, kind, words in ((20, "question", "question"), (130, "answer", "answer, prologue"),
                           (280, "slot", "slot: a turn's passages, named by its message_id")):
        yield box(x, 440, 16, 16, kind)
        yield text(x + 24, 453, words, "small")
    yield text(626, 453, "Pages and row are read in one statement.", "small")


LANES = {"reader": 110, "server": 350, "model": 590, "database": 850}


def step(y: float, start: str, end: str, words: str, note: str = "", kind: str = "") -> Iterator[str]:
    """An arrow from lane to lane, its words above, a note below."""
    side = 8 if LANES[start] < LANES[end] else -8
    yield arrow((LANES[start] + side, y), (LANES[end] - side, y), kind=kind)
    middle = (LANES[start] + LANES[end]) / 2
    yield text(middle, y - 8, words, "middle clear")
    yield text(middle, y + 17, note, "middle small clear")


def turn() -> Iterator[str]:
    """Who says what to whom, from a question to its stored answer."""
    for name, x in LANES.items():
        yield box(x - 75, 20, 150, 34)
        yield text(x, 42, name, "middle bold")
        yield f'<path d="M{x} 54V650" class="line"/>'
    yield from step(92, "reader", "server", "question")
    yield from step(124, "server", "database", "question and run: one commit", "refused: neither")
    yield from step(180, "server", "model", "prompt, passages, history", "no connection is held meanwhile")
    yield from step(230, "model", "server", "deltas")
    yield from step(268, "server", "database", "journal, every 50 ms", "all runs of a process at once")
    yield from step(322, "database", "server", "committed")
    yield from step(356, "server", "reader", "only now: the deltas", "id: <run>:<n>")
    yield box(20, 398, 920, 104, "page")
    yield text(36, 420, "The connection broke, the page was reloaded, another tab or another server joins:", "small")
    for name in LANES.values():
        yield f'<path d="M{name} 428V502" class="line"/>'
    yield from step(452, "reader", "server", "Last-Event-ID", kind="late")
    yield from step(452, "database", "server", "the journal behind it", kind="late")
    yield from step(486, "server", "reader", "what follows, each event once", kind="late")
    yield from step(540, "model", "server", "end")
    yield from step(572, "server", "database", "answer, slot and run's end: one commit",
                    "if the run is still the worker's")
    yield from step(624, "server", "reader", "sources, finish reason")
    yield text(20, 680, "A server was killed: when its lease is over another one ends the run as interrupted, "
               "with what the journal holds.", "small")


def drawings() -> dict[str, str]:
    """The files by name."""
    return {
        "document.svg": svg(980, 474, "A conversation: sealed pages, its row with the open page, an index", document()),
        "turn.svg": svg(960, 700, "A turn: question, journal, answer", turn()),
    }


if __name__ == "__main__":
    for name, drawn in drawings().items():
        (HERE / name).write_text(drawn, "utf-8")
