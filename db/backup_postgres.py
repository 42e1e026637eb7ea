"""Our schema of a PostgreSQL database, by pg_dump and pg_restore, in their custom format.

A password goes to them through the environment, never on a command line, which everybody on the machine can read.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from psycopg2.extensions import make_dsn, parse_dsn

from db.backup import BackupError, Told, check_ours, check_release
from db.database import connection, database, fetch
from db.migrate import exclusive

_LOOK = 0.2  # seconds between two looks at a program that works
_SECRETS = {"sslpassword", "oauth_client_secret"}  # these can't be told through the environment
_SCHEMA = re.compile(r"^\d+; 2615 \d+ SCHEMA - (\S+) .*\n", re.MULTILINE)
_COPIED = re.compile(r"^COPY .*?\((.*?)\) FROM stdin;\n(.*?)^\\\.$", re.MULTILINE | re.DOTALL)


def dump(url: str, file: Path, pg_dump: str, told: Told) -> None:
    """Write our schema as it is now into an empty file. Raises BackupError."""
    schema = database.obj.schema
    with connection():
        server = database.connection().server_version // 10_000
        check_ours(f"schema {schema!r}", applied_in_schema(schema))
        vectors = fetch(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND udt_name = 'vector'", [schema]
        )
    _check_version(pg_dump, server)
    extension = ["--extension=vector"] if vectors else []  # the archive brings the type of its columns along
    address, environment = _address(url)
    _run(
        [pg_dump, "--format=custom", f"--schema={schema}", *extension, "--lock-wait-timeout=30s", "--no-password",
         f"--file={file}", f"--dbname={address}"],
        environment, lambda: told(file.stat().st_size, None),
    )


def restore(url: str, file: Path, pg_restore: str) -> None:
    """Fill our schema, which must be empty or not there, with an archive, whole or not at all. Raises BackupError."""
    schema = database.obj.schema
    listed = _run([pg_restore, "--list", str(file)])
    found = _SCHEMA.findall(listed)
    if found != [schema]:
        raise BackupError(
            f"{file} holds the schema {' '.join(found) or 'of no database'}, not {schema}; "
            "CHATKEEP_DATABASE_SCHEMA names the one to restore into"
        )
    check_release(file, _applied_in(file, schema, pg_restore))
    address, environment = _address(url)
    with connection(), exclusive(), tempfile.NamedTemporaryFile("w", suffix=".list") as entries:
        check_empty(schema)
        entries.write(_SCHEMA.sub("", listed))  # it is there by now, and perhaps somebody else's to make
        entries.flush()
        _run(
            [pg_restore, "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", "--no-comments",
             "--no-password", f"--use-list={entries.name}", f"--dbname={address}", str(file)], environment,
        )


def check_empty(schema: str) -> None:
    """Raises BackupError where the schema holds anything."""
    held = fetch("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) ORDER BY 1 LIMIT 1",
                 [f'"{schema}"'])
    if held:
        raise BackupError(
            f"schema {schema!r} holds {held[0][0]!r} already; restore into another database, or drop the schema first"
        )


def _check_version(pg_dump: str, server: int) -> None:
    wanted = f"this server needs pg_dump {server} or newer; name one by --pg-dump PATH"
    version = re.search(r"\(PostgreSQL\) (\d+)", _run([pg_dump, "--version"], missing=wanted))
    if version is None or int(version[1]) < server:
        raise BackupError(f"{pg_dump} is of version {version[1] if version else 'unknown'}; {wanted}")


def applied_in_schema(schema: str) -> list[str]:
    """The migrations of a schema; none where it isn't there or isn't ours."""
    if fetch("SELECT to_regclass(%s)", [f'"{schema}".schema_migration']) == [(None,)]:
        return []
    return [name for (name,) in fetch(f'SELECT name FROM "{schema}".schema_migration')]


def _applied_in(file: Path, schema: str, pg_restore: str) -> list[str]:
    found = _COPIED.search(
        _run([pg_restore, "--data-only", f"--schema={schema}", "--table=schema_migration", "--file=-", str(file)])
    )
    if found is None:
        return []
    at = found[1].split(", ").index("name")
    return [row.split("\t")[at] for row in found[2].splitlines()]


def _address(url: str) -> tuple[str, dict[str, str]]:
    """What a program may show of a database's address, and the environment with the rest."""
    parameters = parse_dsn(url)
    if told := sorted(_SECRETS & set(parameters)):
        raise BackupError(f"{told[0]} can't be passed on in secret; move it from the URL to a connection service file")
    password = parameters.pop("password", None)
    return make_dsn(**parameters), dict(os.environ) | ({"PGPASSWORD": password} if password else {})


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, told: Callable[[], None] = lambda: None,
    missing: str = "name one by --pg-restore PATH",
) -> str:
    """What a program printed. Raises BackupError with what it complained about."""
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace",
        )
    except OSError as error:
        raise BackupError(f"{command[0]}: {error.strerror}; {missing}") from error
    with process:
        try:
            printed, complaint = _communicate(process, told)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = complaint.strip().splitlines() or [f"it ended with {process.returncode}"]
        first = next((line for line in lines if "error:" in line), lines[0])
        hint = "; name a newer one by --pg-restore PATH" if "unsupported version" in first else ""
        raise BackupError(f"{Path(command[0]).name} refused: {first.partition('error: ')[2] or first}{hint}")
    return printed


def _communicate(process: subprocess.Popen[str], told: Callable[[], None]) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=_LOOK)
        except subprocess.TimeoutExpired:
            told()
