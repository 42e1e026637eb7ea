"""Draw var/bench.json as docs/bench.svg: every number that has a limit, as its share of it. Light and dark alike.

Run: `python -m tests.bench.plot`.
"""

import json
from html import escape
from typing import Any

from tests.processes import ROOT

WIDTH, LEFT, ROOM, LINE, TOP = 900, 400, 330, 20, 64  # pixels; ROOM is a bar at its limit
MOST = 1.25  # longer bars are cut
STYLE = """
    svg { font: 12px system-ui, sans-serif; }
    text { fill: #24292f; } .quiet { fill: #57606a; } .limit { stroke: #57606a; stroke-dasharray: 4 3; }
    .sqlite { fill: #2f81f7; } .postgres { fill: #8957e5; } .missed { fill: #d1242f; }
    @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3; } .quiet { fill: #9198a1; } .limit { stroke: #9198a1; } .missed { fill: #f85149; }
    }"""


def draw(measured: dict[str, Any]) -> str:
    """An SVG: a group of bars a number, a bar an engine, a dashed line at the limit."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        if row["limit"] is not None:
            groups.setdefault(row["name"], []).append(row)
    parts, y = [], TOP
    for name, rows in groups.items():
        middle = y + LINE * len(rows) / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(name)}</text>')
        for row in rows:
            parts.append(bar(row, y))
            y += LINE
        y += LINE // 2
    machine = measured["machine"]
    told = f"{machine['cores']} cores, Python {machine['python']}, load {machine['load before'][0]:.1f}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10}" role="img">',
        "<title>Measured values as shares of their limits</title>", f"<style>{STYLE}\n</style>",
        legend(told), *parts,
        f'<line class="limit" x1="{LEFT + ROOM}" x2="{LEFT + ROOM}" y1="{TOP - 12}" y2="{y}"/>', "</svg>\n",
    ])


def bar(row: dict[str, Any], y: int) -> str:
    share = row["value"] / row["limit"]
    length = min(share, MOST) * ROOM
    kind = "missed" if share > 1 else row["engine"]
    unit = f" {row['unit']}" if row["unit"] not in ("", "x") else ""
    return (
        f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{length:.0f}" height="{LINE - 5}" rx="2">'
        f"<title>{row['engine']}</title></rect>"
        f'<text x="{LEFT + max(length, 0) + 6:.0f}" y="{y + 14}">{row["value"]:.3g} of {row["limit"]:g}{unit}</text>'
    )


def legend(told: str) -> str:
    marks = "".join(
        f'<rect class="{kind}" x="{LEFT + at}" y="14" width="12" height="12" rx="2"/>'
        f'<text x="{LEFT + at + 18}" y="24">{name}</text>'
        for kind, name, at in (("sqlite", "SQLite", 0), ("postgres", "PostgreSQL", 90), ("missed", "over it", 200))
    )
    return (
        f'<text x="10" y="24">Share of each limit</text><text class="quiet" x="10" y="42">{escape(told)}</text>{marks}'
        f'<text class="quiet" x="{LEFT + ROOM}" y="{TOP - 18}" text-anchor="middle">limit</text>'
    )


if __name__ == "__main__":
    (ROOT / "docs/bench.svg").write_text(draw(json.loads((ROOT / "var/bench.json").read_text())))
