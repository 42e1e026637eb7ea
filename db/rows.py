"""What every row is made of: times, JSON as text, the columns of a document."""

import time
from datetime import UTC, datetime
from typing import Any

from peewee import BigIntegerField, CharField, Field, Model, TextField

from db.database import database
from db.jsontext import dumps, loads


def now_ms() -> int:
    """Epoch milliseconds, the unit of every `*_time` column."""
    return time.time_ns() // 1_000_000


def date_of(milliseconds: int) -> str:
    """The `*_date` column that belongs to a `*_time`: ISO 8601, UTC, whole seconds."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


class JSONTextField(TextField):
    """JSON kept as the text it was written as, so that a client reads back exactly what it sent."""

    def db_value(self, value: Any) -> str | None:
        return None if value is None else dumps(value)

    def python_value(self, value: Any) -> Any:
        return None if value is None else loads(value)


class DocumentField(Field):
    """An array column of the document: jsonb on PostgreSQL, text on SQLite."""

    field_type = "JSON"

    def db_value(self, value: Any) -> str:
        return dumps(value)

    def python_value(self, value: Any) -> Any:
        return loads(value) if isinstance(value, str) else value


class Row(Model):
    class Meta:
        database = database
        legacy_table_names = False


class TimedRow(Row):
    create_time = BigIntegerField(default=now_ms)
    create_date = CharField(max_length=19)
    update_time = BigIntegerField()
    update_date = CharField(max_length=19)

    @classmethod
    def create(cls, **columns: Any) -> Any:
        """Insert a row; the times are now, and say the same in all four columns."""
        created = columns.setdefault("create_time", now_ms())
        updated = columns.setdefault("update_time", created)
        columns |= {"create_date": date_of(created), "update_date": date_of(updated)}
        return super().create(**columns)


def touched() -> dict[str, Any]:
    """The columns that every change of a row sets."""
    moment = now_ms()
    return {"update_time": moment, "update_date": date_of(moment)}
