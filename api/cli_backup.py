"""`chatkeep backup` and `chatkeep restore`: one file that holds everything, while the server goes on."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from api.cli_base import json_option, progress, sentence_on_error, settings_of
from services.backup import back_up
from services.backup import restore as put_back


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--pg-dump", default="pg_dump", help="PostgreSQL's pg_dump, of the server's version or newer.")
@json_option
@sentence_on_error
def backup(file: Path, force: bool, pg_dump: str, as_json: bool) -> None:
    """Write everything into one file, of mode 0600, while the server goes on.

    The file holds every turn that was stored when the backup began. On SQLite it is a database itself, on PostgreSQL
    an archive of pg_dump. It is there when it is whole, never before.

    \b
    Examples: chatkeep backup chatkeep.backup
              chatkeep backup --force --json /srv/backups/chatkeep.backup
              chatkeep backup --pg-dump /usr/lib/postgresql/18/bin/pg_dump chatkeep.backup
    """
    began = time.monotonic()
    with _clean_when_told_to_stop(), progress("backing up") as told:
        size = back_up(settings_of(), file, told, force=force, pg_dump=pg_dump)
    seconds = round(time.monotonic() - began, 3)
    if as_json:
        click.echo(json.dumps({"file": str(file), "bytes": size, "seconds": seconds}))
    else:
        click.echo(f"{file}: {size / 1e6:.1f} MB in {seconds:.1f} s")


@contextmanager
def _clean_when_told_to_stop() -> Iterator[None]:
    """SIGTERM ends the program in order, so that no half of a backup stays behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pg-restore", default="pg_restore", help="PostgreSQL's pg_restore, of pg_dump's version or newer.")
@json_option
@sentence_on_error
def restore(file: Path, pg_restore: str, as_json: bool) -> None:
    """Put a backup into an empty database, which the settings name, and bring it up to date.

    A backup of SQLite goes into PostgreSQL too. An answer that had no end when the backup was made is stored as
    interrupted, with what was said.

    \b
    Examples: chatkeep restore chatkeep.backup
              CHATKEEP_DATABASE_URL=sqlite:///copy.db chatkeep restore --json chatkeep.backup
              CHATKEEP_DATABASE_URL=postgresql://user@host/name chatkeep restore chatkeep.backup
    """
    with _clean_when_told_to_stop(), progress("restoring") as told:
        restored = put_back(settings_of(), file, told, pg_restore=pg_restore)
    if as_json:
        click.echo(json.dumps(asdict(restored)))
        return
    click.echo(f"{restored.sessions} sessions are there")
    if restored.interrupted:
        click.echo(f"{restored.interrupted} answers had no end and are interrupted")
    for name in restored.applied:
        click.echo(f"applied {name}")
