"""What the machine gives: a bare Flask application under the same gunicorn, with plain statements on the same database.

Run: `python -m tests.bench.baseline PORT URL`. It reads what tests/bench/serving_rows.py put into `bench_text`.
"""

import sqlite3
import sys
import threading
from typing import Any

import orjson
import psycopg2
from flask import Flask, Response
from gunicorn.app.base import BaseApplication

from conf.gunicorn import gunicorn_options
from conf.settings import load_settings
from db.ids import new_id
from db.sqlite import PRAGMAS
from tests.bench.document import turn

THREADS = 13  # each keeps a connection, as many as our own server has
LIGHT = "id, tenant_id, dialog_id, user_id, name, create_time, update_time"


class Plain:
    """One connection a thread, each statement a commit."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite:")
        self.place = "" if self.is_sqlite else "chatkeep."
        self._local = threading.local()

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        cursor = self._opened().cursor()
        text = statement.replace("{}", self.place)
        cursor.execute(text if self.is_sqlite else text.replace("?", "%s"), parameters)
        return cursor.fetchall() if cursor.description else []

    def _opened(self) -> Any:
        if not hasattr(self._local, "opened"):
            self._local.opened = self._open()
        return self._local.opened

    def _open(self) -> Any:
        if not self.is_sqlite:
            opened = psycopg2.connect(self.url)
            opened.autocommit = True
            return opened
        file = sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        for name, value in (PRAGMAS | {"busy_timeout": 30_000}).items():  # it waits by itself
            file.execute(f"PRAGMA {name} = {value}")
        return file


def create_app(url: str) -> Flask:
    app, plain = Flask(__name__), Plain(url)
    question, answer, slot = turn()

    @app.get("/empty")
    def empty() -> Response:
        return Response(b"{}", mimetype="application/json")

    @app.get("/whole/<group>")
    def whole(group: str) -> Response:
        """The same texts as the sessions of a group have, each from one row."""
        raw = "blob" if plain.is_sqlite else "text"
        texts = f"CAST(message AS {raw}), CAST(reference AS {raw})"
        found = plain.rows(f"SELECT {texts} FROM {{}}bench_text WHERE part_of = ?", group)
        body = b",".join(text if plain.is_sqlite else text.encode() for row in found for text in row)
        return Response(body, mimetype="application/json")

    @app.get("/light/<group>")
    def light(group: str) -> Response:
        ids = "SELECT id FROM {}bench_text WHERE part_of = ?"
        found = plain.rows(f"SELECT {LIGHT} FROM {{}}conversation WHERE id IN ({ids})", group)
        return Response(orjson.dumps([dict(zip(LIGHT.split(", "), row, strict=True)) for row in found]),
                        mimetype="application/json")

    @app.post("/turn")
    def insert() -> Response:
        """A turn as two plain rows."""
        statement = "INSERT INTO {}bench_row (conversation_id, seq, message, reference) VALUES (?, ?, ?, ?)"
        id = new_id()
        plain.rows(statement, id, 1, question, None)
        plain.rows(statement, id, 2, answer, slot)
        return Response(b"{}", mimetype="application/json")

    return app


class Bare(BaseApplication):  # type: ignore[misc]
    def __init__(self, port: int, url: str) -> None:
        self.url = url
        self.options = gunicorn_options(load_settings(port=port, server={"threads": THREADS}))
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return create_app(self.url)


if __name__ == "__main__":
    Bare(int(sys.argv[1]), sys.argv[2]).run()
