"""What was measured, beside what it is judged by: told as it comes, a table at the end, a JSON file for the plot."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Measured:
    """One number. `bare` is what the machine gives for the same, `limit` the most that is allowed."""

    name: str
    engine: str
    value: float
    unit: str
    bare: float | None = None
    limit: float | None = None

    @property
    def is_held(self) -> bool:
        return self.limit is None or self.value <= self.limit


class Report:
    """`engine` is that of the numbers that come next; empty where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = ""
        self.rows: list[Measured] = []
        self.load = os.getloadavg()

    def add(self, name: str, value: float, unit: str, *, bare: float | None = None) -> None:
        self._keep(Measured(name, self.engine, value, unit, bare=bare))

    def judge(self, name: str, value: float, unit: str, limit: float) -> None:
        self._keep(Measured(name, self.engine, value, unit, limit=limit))

    def _keep(self, row: Measured) -> None:
        self.rows.append(row)
        print(f"{row.engine} {row.name}: {row.value:.2f} {row.unit}", flush=True)

    def write(self) -> None:
        machine = {
            "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system(),
            "load before": self.load, "load after": os.getloadavg(),
        }
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in self.rows]}, indent=1))
        Console(width=130).print(self._table(), machine)

    def _table(self) -> Table:
        table = Table("measured", "engine", "value", "bare", "times bare", "limit", "")
        for row in self.rows:
            bare = () if row.bare is None else (f"{row.bare:.2f}", f"{row.value / row.bare:.2f}")
            limit = "" if row.limit is None else f"{row.limit:g}"
            held = "" if row.limit is None else "held" if row.is_held else "MISSED"
            table.add_row(row.name, row.engine, f"{row.value:.2f} {row.unit}", *(bare or ("", "")), limit, held)
        return table
