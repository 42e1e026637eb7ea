"""A line of the log is JSON and holds no secret, whoever wrote it and whatever an exception says."""

import io
import json
import logging
import threading

import psycopg2
import pytest
import structlog
from gunicorn.config import Config
from peewee import PeeweeException

from conf.gunicorn import gunicorn_options
from conf.logs import Secrets, log_lost_threads, redact, set_up_logs
from conf.settings import load_settings
from db.database import change, connection, fetch
from db.models import Tenant

SECRET = "where lies the treasure"


@pytest.fixture
def told():
    """The lines that are written, as text."""
    lines = io.StringIO()
    root, quiet = logging.getLogger(), [logging.getLogger(name) for name in ("api", "services", "db")]
    before = (root.handlers[:], root.level, [logger.level for logger in quiet], threading.excepthook)

    def open_at(level, secrets=()):
        set_up_logs(level, secrets)
        root.handlers[-1].setStream(lines)
        return lines

    yield open_at
    root.handlers[:], threading.excepthook = before[0], before[3]
    for logger, level in zip([root, *quiet], [before[1], *before[2]], strict=True):
        logger.setLevel(level)
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize(("text", "left"), [
    ("Bearer abc.def+ghi/jkl==", "Bearer [redacted]"), ("x chatkeep-embed-0123456789", "x chatkeep-embed-[redacted]"),
    ('{"a": "\\nsk-0123456789"}', '{"a": "\\nsk-[redacted]"}'), ('"\\u94a5sk-0123456789"', '"\\u94a5sk-[redacted]"'),
    ("/tokens/chatkeep-0123456789/more", "/tokens/chatkeep-[redacted]"),
    ("the task-management of disk-backed things", "the task-management of disk-backed things"),
])
def test_tokens_are_known_by_their_form_and_words_stay(text, left):
    assert redact(text) == left


@pytest.mark.parametrize(("key", "text", "left"), [
    ("abcdefgh12345", "key abcdefgh12345!", "key [redacted]!"),
    ("abcdefgh12345", "key abcdefgh12***", "key [redacted]***"),
    ('ab"/defgh12345', '{"e": "ab\\"/defgh12345"}', '{"e": "[redacted]"}'),
    ("ab+/defgh12345", "?key=ab%2B/defgh12345", "?key=[redacted]"),
    ("abcdefgh12345", "a cat", "a cat"), ("", "a cat", "a cat"), ("t", "a cat", "withheld: it may repeat the key"),
    ("x", "a cat", "a cat"),
])
def test_a_key_is_taken_out_and_a_short_one_garbles_no_text(key, text, left):
    assert Secrets([key]).withheld(text) == left


def test_the_servers_own_secrets_are_in_no_line(told):
    settings = load_settings(
        database={"url": "postgresql://me:pass%20word%21@host/db"}, migrate_url="postgresql://me:other-word@host/db",
        model={"base_url": "http://h", "api_key": "model-key-1"},
        models=[{"name": "m", "base_url": "http://h", "api_key": "model-key-2"}],
        embedding={"name": "e", "base_url": "http://h", "api_key": "embedding-key"},
        rerank={"name": "r", "base_url": "http://h", "api_key": "rerank-key"},
    )
    lines = told("INFO", settings.secrets)
    logging.getLogger("api").warning("all of them: %s", settings.secrets)
    logging.getLogger("library").warning("an address: %s", settings.database.url)
    written = lines.getvalue()
    assert not [secret for secret in settings.secrets if secret in written] and "pass%20word" not in written
    assert len(settings.secrets) == len(set(settings.secrets)) == 6


def test_libraries_are_heard_from_warning_on(told):
    lines = told("DEBUG")
    for name in ("peewee", "httpx2", "openai", "gunicorn.error", "anything"):
        logging.getLogger(name).info(SECRET)
    logging.getLogger("services.runs").debug("ours")
    assert [json.loads(line)["event"] for line in lines.getvalue().splitlines()] == ["ours"]


@pytest.mark.parametrize("statement", [
    "SELECT nothing, %s", "SELECT %s FROM nowhere", "INSERT INTO {tenant} (id, name) VALUES ('2', %s)",
    "INSERT INTO {tenant} (id) VALUES (%s)", "SELECT CAST(%s AS integer) / 0 FROM nowhere", "SELECT json_each(%s)",
])
def test_a_databases_error_is_told_without_the_values_it_repeats(store, told, statement):
    with connection():
        Tenant.create(id="1", name=SECRET)
    lines = told("INFO")
    try:
        with connection():
            change(statement, [SECRET])
    except PeeweeException:
        structlog.get_logger("api").exception("failed")
    [line] = map(json.loads, lines.getvalue().splitlines())
    assert SECRET not in str(line) and "Error: " in line["exception"]
    assert "change(" in line["exception"], "the place is told"


def test_a_value_in_the_first_line_of_a_databases_error_is_not_told(store, told):
    if "postgresql" not in store.database.url:
        pytest.skip("SQLite converts anything")
    lines = told("INFO")
    with pytest.raises(psycopg2.Error) as caught, connection():
        try:
            fetch("SELECT %s::integer", [SECRET])
        except PeeweeException as error:
            raise error.__cause__ or error.__context__ from error
    structlog.get_logger("api").error("failed", exc_info=caught.value)
    assert SECRET not in lines.getvalue() and "invalid input syntax" in lines.getvalue()


def test_a_thread_that_ends_by_a_bug_is_a_line_too(told):
    lines = told("INFO")
    log_lost_threads()
    thread = threading.Thread(target=lambda: 1 / 0, name="keeper")
    thread.start()
    thread.join()
    [line] = map(json.loads, lines.getvalue().splitlines())
    assert (line["thread"], line["level"], "ZeroDivisionError" in line["exception"]) == ("keeper", "critical", True)


@pytest.mark.parametrize(("said", "left"), [
    ("Invalid request from ip=1.2.3.4: Invalid HTTP request line: 'GET /token HTTP/9'",
     "Invalid request from ip=1.2.3.4: Invalid HTTP request line"),
    ("Invalid request from ip=: Invalid HTTP Header: b'Authorization token'",
     "Invalid request from ip=: Invalid HTTP Header"),
    ("Worker (pid:7) was sent SIGKILL! Perhaps out of memory?", None),
])
def test_gunicorns_lines_are_ours_in_form_and_repeat_no_request(told, said, left):
    lines = told("INFO")
    options = gunicorn_options(load_settings(log_level="DEBUG"))
    config = Config()
    config.set("loglevel", options["loglevel"])
    log = options["logger_class"](config)
    log.warning(said)
    log.debug("GET /token")
    log.exception("Error handling request %s %s", "GET", "/token")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert (first["event"], second["event"]) == (left or said, "Error handling request")
    assert "token" not in str(second)
