"""The honest rival: a row a message, in one statement with the counters of its session.

The session row is Chatkeep's without the two arrays, with the same indexes; the connections are the same pool's.
A message's JSON stands in its row ready to be sent, so that a read needs no more than to join it.
"""

from typing import Any

from db.database import change, connection, database, fetch
from db.ids import new_id
from db.jsontext import loads
from db.models import date_of, now_ms
from tests.bench.peers.ours import TENANT, open_ours
from tests.bench.peers.peer import LISTED, Peer, Turn

TABLES = (
    "CREATE TABLE {s}.rival (LIKE {s}.conversation INCLUDING DEFAULTS INCLUDING INDEXES)",
    "ALTER TABLE {s}.rival DROP message, DROP reference",
    "ALTER TABLE {s}.rival SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)",
    """CREATE TABLE {s}.rival_message (conversation_id varchar(32) NOT NULL,
    seq bigint NOT NULL, uid varchar(255) NOT NULL, message_id varchar(255), role varchar(32) NOT NULL,
    content json NOT NULL, reference json, created_at double precision NOT NULL,
    PRIMARY KEY (conversation_id, seq))""",
)
NEW = """INSERT INTO chatkeep.rival (id, tenant_id, dialog_id, name, create_time, create_date, update_time, update_date)
    VALUES (%s, %s, %s, 'bench', %s, %s, %s, %s)"""
APPEND = """WITH s AS (UPDATE chatkeep.rival SET next_seq = next_seq + 1, message_count = message_count + 1,
    revision = revision + 1, document_bytes = document_bytes + %s, update_time = %s, update_date = %s
    WHERE id = %s AND tenant_id = %s RETURNING id, next_seq - 1 AS seq)
    INSERT INTO chatkeep.rival_message (conversation_id, seq, uid, message_id, role, content, reference, created_at)
    SELECT id, seq, %s, %s, %s, %s, %s, %s FROM s"""
READ = """SELECT content::text, reference::text FROM chatkeep.rival_message m WHERE conversation_id = %s
    AND EXISTS (SELECT 1 FROM chatkeep.rival s WHERE s.id = m.conversation_id AND tenant_id = %s) ORDER BY seq"""
LAST = READ.replace("ORDER BY seq", "ORDER BY seq DESC LIMIT %s")
LIST = """SELECT * FROM chatkeep.rival WHERE tenant_id = %s AND dialog_id = %s
    ORDER BY create_time DESC, id DESC LIMIT %s"""


class Rows(Peer):
    about = "a row a message and the session's counters, one statement a message"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        open_ours(url)
        with connection():
            for statement in TABLES:
                database.execute_sql(statement.replace("{s}", "chatkeep"))

    def close(self) -> None:
        database.obj.close_idle()

    def session(self, owner: str) -> str:
        session, moment = new_id(), now_ms()
        with connection():
            change(NEW, [session, TENANT, owner, moment, date_of(moment), moment, date_of(moment)])
        return session

    def append(self, session: str, turn: Turn) -> None:
        question, answer, slot = turn.texts
        self._add(session, turn, "user", question, None)
        self._add(session, turn, "assistant", answer, slot)

    def _add(self, session: str, turn: Turn, role: str, content: str, reference: str | None) -> None:
        moment = now_ms()
        length = len(content.encode()) + len((reference or "").encode())
        uid = turn.id if role == "user" else new_id()
        with connection():
            change(APPEND, [
                length, moment, date_of(moment), session, TENANT, uid, turn.id, role, content, reference,
                turn.created_at,
            ])

    def _read(self, session: str) -> list[tuple[str, str | None]]:
        with connection():
            return fetch(READ, [session, TENANT])

    def read_all(self, session: str) -> tuple[bytes, bytes]:
        rows = self._read(session)
        messages = ",".join(content for content, _ in rows)
        references = ",".join(reference for _, reference in rows if reference)
        return f"[{messages}]".encode(), f"[{references}]".encode()

    def read_parsed(self, session: str) -> Any:
        rows = self._read(session)
        return [loads(content) for content, _ in rows], [loads(reference) for _, reference in rows if reference]

    def read_last(self, session: str, count: int) -> Any:
        with connection():
            rows = fetch(LAST, [session, TENANT, count])
        return [(loads(content), reference and loads(reference)) for content, reference in reversed(rows)]

    def list_30(self, owner: str) -> Any:
        with connection():
            return fetch(LIST, [TENANT, owner, LISTED])

    def texts(self, session: str) -> set[str]:
        return {entry["content"] for entry in self.read_parsed(session)[0]}
