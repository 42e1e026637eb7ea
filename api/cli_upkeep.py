"""`chatkeep doctor` and `chatkeep prune`: what is wrong in the database, and what is due to go."""

import json
import sys
from dataclasses import asdict

import click

from api.cli_base import existing_database, json_option, progress, say, sentence_on_error
from services.doctor import Doctor
from services.pruning import Pruning


@click.command()
@click.option("--fix", is_flag=True, help="Do the safe mends: counters, index, rows that nothing leads to, lost runs.")
@json_option
@sentence_on_error
def doctor(fix: bool, as_json: bool) -> None:
    """Look for anything in the database that breaks a rule. Changes nothing without --fix.

    Exit code 0 if all is well, or is well again; 1 if findings are left.

    \b
    Examples: chatkeep doctor --json
              chatkeep doctor --fix
    """
    settings = existing_database()
    with progress("examining") as told:
        examiner = Doctor(settings.document.retention_days, told)
        left = list(examiner.examine())
        mended, left = examiner.mend(left) if fix else ([], left)
    due = examiner.due()
    if as_json:
        click.echo(json.dumps({
            "examined": examiner.examined, "due": due, "mended": [asdict(found) for found in mended],
            "findings": [asdict(found) for found in left],
        }))
    else:
        for found in mended:
            say(f"{found.check} {found.id}: {found.problem}. Mended.", "green")
        for found in left:
            say(f"{found.check} {found.id}: {found.problem}. To mend: {found.mend}.", "yellow")
        was_mended = f"{len(mended)} mended, " if fix else ""
        click.echo(f"{examiner.examined} sessions examined, {was_mended}{len(left)} findings, {due} due for pruning")
    sys.exit(1 if left else 0)


@click.command()
@click.option("--yes", is_flag=True, help="Erase. Without it nothing is changed.")
@json_option
@sentence_on_error
def prune(yes: bool, as_json: bool) -> None:
    """Count, and with --yes erase, what nobody can reach any more, of every tenant.

    That is a chat that was deleted longer ago than `document.retention_days`, with its sessions and embed tokens,
    and a token that was revoked or has expired for as long.

    \b
    Examples: chatkeep prune
              chatkeep prune --yes --json
              CHATKEEP_DOCUMENT_RETENTION_DAYS=90 chatkeep prune
    """
    pruning = Pruning(existing_database().document.retention_days)
    with progress("pruning") as told:
        due = pruning.due()
        erased = pruning.erase(lambda sessions: told(sessions, due.sessions)) if yes else due
    if as_json:
        click.echo(json.dumps(asdict(erased) | {"erased": yes}))
        return
    counted = f"{erased.sessions} sessions, {erased.chats} chats and {erased.tokens} tokens"
    click.echo(f"{counted} are erased" if yes else f"{counted} are due; --yes erases them")
