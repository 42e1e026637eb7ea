"""Which files a command names, and what a dataset calls them: the same whatever else is named beside them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from api.cli_base import Refusal
from services.knowledge.datasets import sound_name


def named_files(paths: Sequence[Path], largest: int) -> dict[str, Path]:
    """Each file under its name in a dataset: its own, or its path below a folder that was named.

    Raises Refusal where two files would have one name, where a folder is empty, and for a file of more than `largest`
    bytes.
    """
    found: dict[str, Path] = {}
    for path in paths:
        inside = list(_files(path))
        if not inside:
            raise Refusal(f"there is no file in {path}")
        for below, file in inside:
            _check_size(file, largest)
            name = sound_name("document", below)
            other = found.setdefault(name, file)
            if not other.samefile(file):
                raise Refusal(
                    f"{other} and {file} would both be {name!r}; name a folder above them, whose files are called by "
                    "their path below it, or add them to two datasets"
                )
    return found


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """The file, or the folder's files in order, without hidden ones."""
    if not path.is_dir():
        yield path.name, path
        return
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(place, name)
            if not name.startswith(".") and file.is_file():
                yield file.relative_to(path).as_posix(), file


def _check_size(file: Path, largest: int) -> None:
    size = file.stat().st_size
    if size > largest:
        raise Refusal(f"{file} has {size} bytes; at most {largest} are allowed (CHATKEEP_LIMITS_UPLOAD_BYTES)")
