"""The document's SQL, one form an engine, kept as texts.

The append mints `seq` from the row's own `next_seq` and touches nothing where the row needs care first
(another system's arrays, a newer format, a full page). A turn that fills the page goes into the page row
at once, with what the open page held: it isn't written to a row that is emptied a moment later.
"""

import functools

APPEND = {
    "sqlite": "json_insert(%(column)s%(values)s)",
    "postgres": "%(column)s || jsonb_build_array(%(values)s)",
}
APPEND_ENTRY = {
    "sqlite": ", '$[#]', json_set(json(%%s), '$.seq', next_seq + %d)",
    "postgres": "%%s::jsonb || jsonb_build_object('seq', next_seq + %d)",
}
APPEND_SLOT = {"sqlite": ", '$[#]', json(%s)", "postgres": "%s::jsonb"}
APPEND_COUNTERS = """next_seq = next_seq + %(count)d, message_count = message_count + %(count)d,
    revision = revision + 1, document_bytes = document_bytes + %%s,
    format = CASE WHEN format < %%s THEN %%s ELSE format END, update_time = %%s, update_date = %%s%(sets)s
    WHERE id = %%s AND tenant_id = %%s AND next_seq > 0 AND format <= 2 AND open_bytes <= %%s%(only)s
    RETURNING next_seq - %(count)d AS first_seq, open_bytes, revision"""

# The index rows go in the append's own statement where the engine can (SQLite has no such CTE).
INDEX_ROWS = """INSERT INTO {message_index} (conversation_id, seq, uid, message_id, role)"""
APPEND_WITH_INDEX = "WITH %sw AS (%s), i AS (" + INDEX_ROWS + """
    SELECT %%s, w.first_seq + e.o - 1, e.v->>0, e.v->>1, e.v->>2
    FROM w, jsonb_array_elements(%%s::jsonb) WITH ORDINALITY e(v, o)) SELECT * FROM w"""
INDEX = {
    "sqlite": INDEX_ROWS + """ SELECT %s, %s + key, json_extract(value, '$[0]'),
        json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(%s)""",
    "postgres": INDEX_ROWS + """ SELECT %s, %s + e.o - 1, e.v->>0, e.v->>1, e.v->>2
        FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY e(v, o)""",
}

DEFAULT_NAME = "New session"
# A session that nobody named; a row of another system may have a name without a source.
_UNNAMED = f"name_source = 'default' AND coalesce(name, '{DEFAULT_NAME}') = '{DEFAULT_NAME}'"
NAMING = {
    column: f"{column} = CASE WHEN {_UNNAMED} THEN %s ELSE {column} END" for column in ("name", "name_source")
}

NEW_PAGE = """INSERT INTO {page} (conversation_id, first_seq, last_seq, message_count, message, reference,
    page_bytes)"""
EMPTIED = "message = '[]', reference = '[]', page_count = page_count + 1, open_bytes = 0"
# Only ended turns move: as many slots as questions, and none is cut in two.
SEAL = {
    "sqlite": NEW_PAGE + """ SELECT id, coalesce(json_extract(message, '$[0].seq'), next_seq), %(last)s,
        json_array_length(message) + %(entries)d, %(message)s, %(reference)s, open_bytes + %%s FROM {table}
        WHERE id = %%s AND json_array_length(message) + %(entries)d > 0
        AND json_array_length(reference) + %(slots)d = %(questions)d +
        (SELECT count(*) FROM json_each(message) WHERE json_extract(value, '$.role') = 'user')""",
    "postgres": NEW_PAGE + """ SELECT id, coalesce((message->0->>'seq')::bigint, next_seq), %(last)s,
        jsonb_array_length(message) + %(entries)d, (%(message)s)::text::json, (%(reference)s)::text::json,
        open_bytes + %%s FROM {table}
        WHERE id = %%s AND jsonb_array_length(message) + %(entries)d > 0
        AND jsonb_array_length(reference) + %(slots)d = %(questions)d +
        jsonb_array_length(jsonb_path_query_array(message, '$[*] ? (@.role == "user")'))""",
}
LAST_SEQ = {"sqlite": "json_extract(message, '$[#-1].seq')", "postgres": "(message->-1->>'seq')::bigint"}
# With the append in one statement where the engine can; on SQLite one after the other.
SEAL_FIRST = "p AS (%s RETURNING conversation_id), "
SEALED = " AND id IN (SELECT conversation_id FROM p)"

# One statement is one snapshot: two would miss a turn that is sealed between them, or show it twice.
READ = """SELECT conversation_id, first_seq, CAST(message AS {raw}), CAST(reference AS {raw}), -1, 0 FROM {page}
    WHERE conversation_id IN (%(ids)s)%(pages)s
    UNION ALL SELECT id, next_seq, CAST(message AS {raw}), CAST(reference AS {raw}), format, revision
    FROM {table} WHERE id IN (%(ids)s) AND tenant_id = %%s"""
IN_RANGE = """ AND first_seq <= %s AND first_seq >= coalesce((SELECT max(first_seq) FROM {page}
    WHERE conversation_id = %s AND first_seq <= %s), 0)"""


@functools.cache
def append_statement(
    engine: str, entries: int, slots: int, sets: tuple[str, ...] = (), *, guarded: bool = False,
    sealing: bool = False,
) -> str:
    """The UPDATE that appends so many entries and slots, without the index's rows.

    Parameters in order: the entries' and slots' texts and their bytes; their bytes again, the format they
    need twice, update_time, update_date, a value for each of `sets`, id, tenant_id, the bytes that the
    open page may have before, and the revision if guarded. `sealing`: the open page is emptied, because
    `seal_statement` took it, its entries and slots: then the first two are left out.
    """
    changed = EMPTIED
    if not sealing:
        appended = _appended(engine, entries, slots)
        # A column that gets nothing isn't named: assigned to itself it would be written anew, all of it.
        changed = "".join(f"{column} = {value}, " for column, value in appended.items() if value != column)
        changed += "open_bytes = open_bytes + %s"
    only = " AND revision = %s" if guarded else SEALED if sealing and engine == "postgres" else ""
    return "UPDATE {table} SET " + changed + ", " + APPEND_COUNTERS % {
        "count": entries, "sets": "".join(f", {assignment}" for assignment in sets), "only": only,
    }


@functools.cache
def seal_statement(engine: str, entries: int = 0, slots: int = 0, questions: int = 0) -> str:
    """The INSERT of a page row: the open page and so many entries (`questions` of them a user's) and slots.

    It inserts nothing where a turn would be cut. Parameters: the texts and their bytes, id. The caller
    holds the row, and empties it by the same transaction.
    """
    last = f"next_seq + {entries - 1}" if entries else LAST_SEQ[engine]
    counts = {"entries": entries, "slots": slots, "questions": questions}
    return SEAL[engine] % (_appended(engine, entries, slots) | {"last": last} | counts)


def _appended(engine: str, entries: int, slots: int) -> dict[str, str]:
    """Both columns with so many values behind what they hold."""
    values = {
        "message": [APPEND_ENTRY[engine] % position for position in range(entries)],
        "reference": [APPEND_SLOT[engine]] * slots,
    }
    join = ", ".join if engine == "postgres" else "".join
    return {
        column: APPEND[engine] % {"column": column, "values": join(new)} if new else column
        for column, new in values.items()
    }
