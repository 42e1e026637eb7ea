"""How far long work has come: on standard error where that is a terminal, nowhere else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from db.schema_change import Told


def progress_bars() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())


@contextmanager
def migration_progress() -> Iterator[Told]:
    """What a migration tells while this lasts, a bar for each table."""
    bars: dict[str, TaskID] = {}
    with progress_bars() as progress:
        def told(table: str, done: int, total: int) -> None:
            if table not in bars:
                bars[table] = progress.add_task(f"migrating {table}", total=total)
            progress.update(bars[table], completed=done)

        yield told
