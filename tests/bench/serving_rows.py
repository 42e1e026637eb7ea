"""The sessions that tests/bench/serving.py asks for: chats of 100 and of 100,000, the newest thirty of each with
documents of 130 KB, and one of 100 turns; and the same documents as plain rows."""

from dataclasses import dataclass

from conf.settings import Settings
from db.database import change, connection, database, dialect, fetch, open_database, transaction
from db.document import CONVERSATIONS
from db.migrate import migrate
from db.sqlite import SQLITE
from services.api_tokens import ApiTokenService, TenantService
from services.principal import Principal
from tests.bench import document
from tests.bench.document import append_turn, turn
from tests.factories import DialogFactory

SIZES = (100, 100_000)
LISTED, TURNS, LONG = 30, 20, 100

# Sessions of another time, in one order by creation and in another by their last change.
COLUMNS = "id, tenant_id, dialog_id, name, create_time, create_date, update_time, update_date, next_seq, " \
          "message_count, open_bytes, document_bytes, message, reference"
ROW = "%s, %s, 'session ' || n, 1700000000000 + n, '2023-11-14 22:13:20', 1700000000000 + mod(n * 7919, 1000003), " \
      "'2023-11-14 22:13:20', 2, 1, 500, 500, %s, '[]'"
MANY = {
    "sqlite": f"""INSERT INTO {{conversation}} ({COLUMNS}) WITH RECURSIVE n(n) AS (
        SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT %s) SELECT %s || printf('%016x', n), {ROW} FROM n""",
    "postgres": f"""INSERT INTO {{conversation}} ({COLUMNS}) WITH RECURSIVE n(n) AS (
        (SELECT generate_series(1, %s))) SELECT %s || lpad(to_hex(n), 16, '0'), {ROW} FROM n""",
}


@dataclass
class Filled:
    """Where everything is; a chat's id for each number of sessions."""

    token: str
    chats: dict[int, str]
    asked: str  # a session of the chat of 100
    long: str
    long_chat: str


def fill(settings: Settings) -> Filled:
    open_database(settings)
    migrate(settings)
    principal = Principal(TenantService.ensure("default").id)
    document.TENANT = principal.tenant_id
    with connection():
        prepare()
        *lists, long_chat = (DialogFactory(tenant_id=principal.tenant_id).id for _ in (*SIZES, LONG))
        chats = dict(zip(SIZES, lists, strict=True))
        for size, chat in chats.items():
            many(principal.tenant_id, chat, size - LISTED)
            for _ in range(LISTED):
                keep(f"of {size}", session(principal.tenant_id, chat, TURNS))
        asked = session(principal.tenant_id, chats[SIZES[0]], 0)
        change("UPDATE {conversation} SET create_time = 1, update_time = 1 WHERE id = %s", [asked])
        long = session(principal.tenant_id, long_chat, LONG)
        keep("long", long)
        database.execute_sql("ANALYZE")
    token = ApiTokenService.create(principal)[1]
    database.obj.close_all()
    return Filled(token, chats, asked, long, long_chat)


def prepare() -> None:
    kind = "text" if dialect() is SQLITE else "jsonb"
    place = "" if dialect() is SQLITE else "chatkeep."
    for statement in (
        f"CREATE TABLE {place}bench_row (conversation_id varchar(32), seq bigint, message {kind}, reference {kind}, "
        "PRIMARY KEY (conversation_id, seq))",
        f"CREATE TABLE {place}bench_text (part_of varchar(32), id varchar(32), message text, reference text, "
        "PRIMARY KEY (part_of, id))",
    ):
        database.execute_sql(statement)


def many(tenant_id: str, chat: str, count: int) -> None:
    entry = '[{"role":"assistant","uid":"u","seq":1,"content":"%s"}]' % document.prose(450)
    change(MANY[dialect().name], [count, chat[-16:], tenant_id, chat, entry])


def session(tenant_id: str, chat: str, turns: int) -> str:
    with transaction():
        id: str = CONVERSATIONS.create({"tenant_id": tenant_id, "dialog_id": chat, "name": "whole"}).id
        for _ in range(turns):
            append_turn(id, *turn())
    return id


def keep(group: str, id: str) -> None:
    """The same document in one plain row."""
    text = CONVERSATIONS.load_text(document.TENANT, id)
    place = "" if dialect() is SQLITE else "chatkeep."
    change(f"INSERT INTO {place}bench_text VALUES (%s, %s, %s, %s)",
           [group, id, text.array(0).decode(), text.array(1).decode()])
    assert fetch(f"SELECT count(*) FROM {place}bench_text WHERE id = %s", [id]) == [(1,)]
