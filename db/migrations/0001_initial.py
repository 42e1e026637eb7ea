"""All tables of the first release, frozen: later changes are later files.

The two document columns stand last, so that light scans never touch them, and refuse anything but an
array: on NULL or an object both engines would report a successful append and store nothing.
"""

import re

TIMES = "create_time bigint NOT NULL, create_date {date} NOT NULL, update_time bigint NOT NULL, " \
        "update_date {date} NOT NULL"

OWNERSHIP = """
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL, dialog_id varchar(32) NOT NULL,
    user_id varchar(255), visitor_id varchar(64), name varchar(255),
    name_source varchar(16) NOT NULL DEFAULT 'default', """ + TIMES

COUNTERS = """
    format integer NOT NULL DEFAULT 1, revision bigint NOT NULL DEFAULT 0,
    next_seq bigint NOT NULL DEFAULT 1, message_count integer NOT NULL DEFAULT 0,
    page_count integer NOT NULL DEFAULT 0, open_bytes bigint NOT NULL DEFAULT 0,
    document_bytes bigint NOT NULL DEFAULT 0"""

ARRAYS = """
    message {json} NOT NULL DEFAULT '[]' CHECK ({is_array_of}(message) = 'array'),
    reference {json} NOT NULL DEFAULT '[]' CHECK ({is_array_of}(reference) = 'array')"""

PAGES = """CREATE TABLE {%(table)s_page} (
    conversation_id varchar(32) NOT NULL REFERENCES {%(table)s} (id)
        ON DELETE CASCADE ON UPDATE CASCADE,
    first_seq bigint NOT NULL, last_seq bigint NOT NULL, message_count integer NOT NULL,
    page_bytes bigint NOT NULL, message {sealed} NOT NULL, reference {sealed} NOT NULL,
    PRIMARY KEY (conversation_id, first_seq))"""

LISTS = (
    "CREATE INDEX %(table)s_created ON {%(table)s} (dialog_id, create_time DESC, id DESC)",
    "CREATE INDEX %(table)s_updated ON {%(table)s} (dialog_id, update_time DESC, id DESC)",
    "CREATE INDEX %(table)s_user ON {%(table)s} (dialog_id, user_id, create_time DESC)",
    "CREATE INDEX %(table)s_name ON {%(table)s} (dialog_id, name{bytewise}, id)",
)

# Every page of one conversation with its open page, in order: for people with a database shell.
FULL_VIEW = {
    "sqlite": """CREATE VIEW conversation_full AS SELECT c.id, c.tenant_id, c.dialog_id, c.name,
        c.message_count, c.update_time,
        (SELECT json_group_array(json(v)) FROM (
            SELECT p.first_seq AS k, e.key AS o, {each_json} AS v
                FROM conversation_page p, json_each(p.message) e WHERE p.conversation_id = c.id
            UNION ALL SELECT 9223372036854775807, e.key, {each_json} FROM json_each(c.message) e
            ORDER BY k, o)) AS message,
        (SELECT json_group_array(json(v)) FROM (
            SELECT p.first_seq AS k, e.key AS o, {each_json} AS v
                FROM conversation_page p, json_each(p.reference) e WHERE p.conversation_id = c.id
            UNION ALL SELECT 9223372036854775807, e.key, {each_json} FROM json_each(c.reference) e
            ORDER BY k, o)) AS reference
        FROM conversation c""",
    "postgres": """CREATE VIEW {schema}.conversation_full AS SELECT c.id, c.tenant_id, c.dialog_id, c.name,
        c.message_count, c.update_time,
        coalesce((SELECT jsonb_agg(e.v ORDER BY p.first_seq, e.o) FROM {conversation_page} p,
            json_array_elements(p.message) WITH ORDINALITY e(v, o) WHERE p.conversation_id = c.id), '[]')
            || c.message AS message,
        coalesce((SELECT jsonb_agg(e.v ORDER BY p.first_seq, e.o) FROM {conversation_page} p,
            json_array_elements(p.reference) WITH ORDINALITY e(v, o) WHERE p.conversation_id = c.id), '[]')
            || c.reference AS reference
        FROM {conversation} c""",
}

TEXT_INDEX = {
    "sqlite": (
        "CREATE VIRTUAL TABLE dataset_chunk_text USING fts5("
        "search_text, content='dataset_chunk', content_rowid='number', tokenize='unicode61')",
        "CREATE TRIGGER dataset_chunk_added AFTER INSERT ON dataset_chunk BEGIN "
        "INSERT INTO dataset_chunk_text(rowid, search_text) VALUES (new.number, new.search_text); END",
        "CREATE TRIGGER dataset_chunk_removed AFTER DELETE ON dataset_chunk BEGIN "
        "INSERT INTO dataset_chunk_text(dataset_chunk_text, rowid, search_text) "
        "VALUES ('delete', old.number, old.search_text); END",
        "CREATE TRIGGER dataset_chunk_changed AFTER UPDATE OF search_text ON dataset_chunk BEGIN "
        "INSERT INTO dataset_chunk_text(dataset_chunk_text, rowid, search_text) "
        "VALUES ('delete', old.number, old.search_text); "
        "INSERT INTO dataset_chunk_text(rowid, search_text) VALUES (new.number, new.search_text); END",
    ),
    "postgres": (
        "ALTER TABLE {dataset_chunk} ADD COLUMN search_vector tsvector "
        "GENERATED ALWAYS AS (to_tsvector('simple', search_text)) STORED",
        "CREATE INDEX dataset_chunk_search ON {dataset_chunk} USING gin (search_vector)",
    ),
}

# An open page is rewritten with every turn: compressing it each time costs more than its bytes. Sealed
# pages, written once, are compressed.
UNCOMPRESSED = {
    "sqlite": (),
    "postgres": tuple(
        "ALTER TABLE {%s} ALTER message SET STORAGE EXTERNAL, ALTER reference SET STORAGE EXTERNAL" % table
        for table in ("conversation", "api_4_conversation")
    ),
}

TABLES = (
    "CREATE TABLE {tenant} (id varchar(32) PRIMARY KEY, name varchar(255) NOT NULL UNIQUE, "
    "create_time bigint NOT NULL)",

    """CREATE TABLE {dialog} (
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL, name varchar(255) NOT NULL,
    name_key varchar(1024) NOT NULL, description text, icon text, language varchar(32),
    llm_id varchar(128) NOT NULL, tenant_llm_id varchar(32), llm_setting text NOT NULL,
    prompt_type varchar(16) NOT NULL, prompt_config text NOT NULL, meta_data_filter text,
    similarity_threshold {float} NOT NULL, vector_similarity_weight {float} NOT NULL,
    top_n bigint NOT NULL, top_k bigint NOT NULL, do_refer varchar(1) NOT NULL,
    rerank_id varchar(128) NOT NULL, tenant_rerank_id varchar(32), kb_ids text NOT NULL,
    status varchar(1), """ + TIMES + ")",
    "CREATE UNIQUE INDEX dialog_name ON {dialog} (tenant_id, name_key) WHERE status = '1'",
    "CREATE INDEX dialog_created ON {dialog} (tenant_id, create_time DESC, id DESC)",

    "CREATE TABLE {conversation} (" + OWNERSHIP + "," + COUNTERS + "," + ARRAYS + "){options}",
    "CREATE TABLE {api_4_conversation} (" + OWNERSHIP + """,
    exp_user_id varchar(255), tokens bigint NOT NULL DEFAULT 0, source varchar(16), dsl text,
    duration {float} NOT NULL DEFAULT 0, round bigint NOT NULL DEFAULT 0,
    thumb_up bigint NOT NULL DEFAULT 0, errors text, version_title varchar(255),"""
    + COUNTERS + "," + ARRAYS + "){options}",
    *(
        statement % {"table": table}
        for table in ("conversation", "api_4_conversation") for statement in (PAGES, *LISTS)
    ),

    """CREATE TABLE {chat_channel} (
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL, name varchar(128) NOT NULL,
    channel varchar(128) NOT NULL, config text NOT NULL, chat_id varchar(32),
    status integer NOT NULL DEFAULT 1, """ + TIMES + ")",
    "CREATE INDEX chat_channel_tenant ON {chat_channel} (tenant_id, create_time DESC)",

    """CREATE TABLE {api_token} (
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL, token varchar(255) NOT NULL UNIQUE,
    dialog_id varchar(32), source varchar(16), beta varchar(255), prefix varchar(32) NOT NULL,
    name varchar(255), origins text NOT NULL, last_used_time bigint, expires_time bigint,
    revoked_time bigint, """ + TIMES + ")",
    "CREATE INDEX api_token_tenant ON {api_token} (tenant_id, create_time DESC)",

    """CREATE TABLE {run} (
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL, conversation_id varchar(32),
    kind varchar(16) NOT NULL, turn_id varchar(255), client_run_id varchar(255),
    parent_run_id varchar(255), idempotency_key varchar(255), status varchar(16) NOT NULL,
    outcome varchar(16), finish_reason varchar(16), error_code varchar(32), error_message text,
    usage text, owner varchar(255), lease_until {float}, cancel_requested {bool} NOT NULL,
    arrival bigint NOT NULL DEFAULT 0, input text, last_n bigint NOT NULL DEFAULT 0,
    started_at {float}, ended_at {float})""",
    "CREATE UNIQUE INDEX run_one_active ON {run} (conversation_id) WHERE status = 'active'",
    "CREATE UNIQUE INDEX run_turn ON {run} (conversation_id, turn_id)",
    "CREATE UNIQUE INDEX run_client_id ON {run} (conversation_id, client_run_id)",
    "CREATE UNIQUE INDEX run_idempotency ON {run} (conversation_id, idempotency_key)",
    "CREATE INDEX run_started ON {run} (conversation_id, started_at)",
    "CREATE INDEX run_open ON {run} (lease_until) WHERE status IN ('active', 'queued')",
    "CREATE INDEX run_journaled ON {run} (ended_at) WHERE last_n > 0",
    "CREATE TABLE {run_event} (run_id varchar(32) NOT NULL, n bigint NOT NULL, payload text NOT NULL, "
    "PRIMARY KEY (run_id, n))",

    """CREATE TABLE {message_index} (
    conversation_id varchar(32) NOT NULL, seq bigint NOT NULL, uid varchar(255) NOT NULL,
    message_id varchar(255), role varchar(32) NOT NULL, PRIMARY KEY (conversation_id, seq))""",
    "CREATE UNIQUE INDEX message_index_uid ON {message_index} (conversation_id, uid)",
    "CREATE INDEX message_index_message ON {message_index} (conversation_id, message_id)",

    """CREATE TABLE {dataset} (
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL, name varchar(255) NOT NULL,
    description text, document_count bigint NOT NULL DEFAULT 0, chunk_count bigint NOT NULL DEFAULT 0, """
    + TIMES + ", UNIQUE (tenant_id, name))",
    """CREATE TABLE {dataset_document} (
    id varchar(32) PRIMARY KEY, tenant_id varchar(32) NOT NULL,
    dataset_id varchar(32) NOT NULL REFERENCES {dataset} (id) ON DELETE CASCADE,
    name varchar(255) NOT NULL, location text, size bigint NOT NULL, digest varchar(64) NOT NULL,
    run varchar(16) NOT NULL, progress {float} NOT NULL, progress_msg text NOT NULL,
    chunk_count bigint NOT NULL DEFAULT 0, """ + TIMES + ")",
    "CREATE INDEX dataset_document_name ON {dataset_document} (dataset_id, name)",
    """CREATE TABLE {dataset_chunk} (
    {chunk_key}, tenant_id varchar(32) NOT NULL, dataset_id varchar(32) NOT NULL,
    document_id varchar(32) NOT NULL REFERENCES {dataset_document} (id) ON DELETE CASCADE,
    chunk_index bigint NOT NULL, content text NOT NULL, heading text NOT NULL, page bigint,
    search_text text NOT NULL)""",
    "CREATE INDEX dataset_chunk_document ON {dataset_chunk} (document_id, chunk_index)",
)

SPELLING = {
    "sqlite": {
        "json": "text", "sealed": "text", "is_array_of": "json_type", "float": "double precision",
        "bool": "integer", "date": "text", "bytewise": "", "options": "",
        "each_json": "CASE WHEN e.type IN ('object', 'array') THEN e.value ELSE json_quote(e.value) END",
        # the full-text index names rows by number, and VACUUM may renumber an implicit one
        "chunk_key": "number integer PRIMARY KEY, id varchar(32) NOT NULL UNIQUE",
    },
    "postgres": {
        "json": "jsonb", "sealed": "json", "is_array_of": "jsonb_typeof", "float": "double precision",
        "bool": "boolean", "date": "timestamp", "bytewise": ' COLLATE "C"',
        "chunk_key": "id varchar(32) PRIMARY KEY",
        "options": " WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, "
                   "toast.autovacuum_vacuum_scale_factor = 0.02)",
    },
}


def up(migrator, db):
    engine = db.dialect.name
    spelling = SPELLING[engine]
    for statement in (*TABLES, *UNCOMPRESSED[engine], *TEXT_INDEX[engine], FULL_VIEW[engine]):
        db.execute_sql(in_schema(spelled(statement, spelling), db.schema))


def spelled(statement, spelling):
    for word, text in spelling.items():
        statement = statement.replace("{%s}" % word, text)
    return statement


def in_schema(statement, schema):
    """`{table}` with its schema before it; `{schema}` alone is the schema."""
    prefix = f'"{schema}".' if schema else ""
    return re.sub(r"\{(\w+)\}", lambda found: prefix + found[1],
                  statement.replace("{schema}.", prefix))
