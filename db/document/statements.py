"""The document's SQL, one form an engine, kept as texts.

The append mints `seq` from the row's own `next_seq` and touches nothing where the row needs care first
(another system's arrays, a newer format, a full page); sealing is one round trip.
"""

import functools

APPEND = {
    "sqlite": "%(column)s = json_insert(%(column)s%(values)s), ",
    "postgres": "%(column)s = %(column)s || jsonb_build_array(%(values)s), ",
}
APPEND_ENTRY = {
    "sqlite": ", '$[#]', json_set(json(%%s), '$.seq', next_seq + %d)",
    "postgres": "%%s::jsonb || jsonb_build_object('seq', next_seq + %d)",
}
APPEND_SLOT = {"sqlite": ", '$[#]', json(%s)", "postgres": "%s::jsonb"}
APPEND_COUNTERS = """next_seq = next_seq + %(count)d, message_count = message_count + %(count)d,
    revision = revision + 1, open_bytes = open_bytes + %%s, document_bytes = document_bytes + %%s,
    format = CASE WHEN format < %%s THEN %%s ELSE format END, update_time = %%s, update_date = %%s%(sets)s
    WHERE id = %%s AND tenant_id = %%s AND next_seq > 0 AND format <= 2 AND open_bytes <= %%s%(unless)s
    RETURNING next_seq - %(count)d AS first_seq, open_bytes, revision"""

# The index rows go in the append's own statement where the engine can (SQLite has no such CTE).
INDEX_ROWS = """INSERT INTO {message_index} (conversation_id, seq, uid, message_id, role)"""
APPEND_WITH_INDEX = "WITH w AS (%s), i AS (" + INDEX_ROWS + """
    SELECT %%s, w.first_seq + e.o - 1, e.v->>0, e.v->>1, e.v->>2
    FROM w, jsonb_array_elements(%%s::jsonb) WITH ORDINALITY e(v, o)) SELECT * FROM w"""
INDEX = {
    "sqlite": INDEX_ROWS + """ SELECT %s, %s + key, json_extract(value, '$[0]'),
        json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(%s)""",
    "postgres": INDEX_ROWS + """ SELECT %s, %s + e.o - 1, e.v->>0, e.v->>1, e.v->>2
        FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY e(v, o)""",
}

NEW_PAGE = """INSERT INTO {page} (conversation_id, first_seq, last_seq, message_count, page_bytes, message,
    reference)"""
# Only ended turns move: as many slots as questions in the open page, and none is cut in two.
SEAL = {
    "sqlite": (
        NEW_PAGE + """ SELECT id, json_extract(message, '$[0].seq'), json_extract(message, '$[#-1].seq'),
            json_array_length(message), open_bytes, message, reference FROM {table}
            WHERE id = %s AND json_array_length(message) > 0 AND json_array_length(reference) =
            (SELECT count(*) FROM json_each(message) WHERE json_extract(value, '$.role') = 'user')""",
        """UPDATE {table} SET message = '[]', reference = '[]', open_bytes = 0,
            page_count = page_count + 1 WHERE id = %s""",
    ),
    "postgres": (
        "WITH p AS (" + NEW_PAGE + """ SELECT id, (message->0->>'seq')::bigint, (message->-1->>'seq')::bigint,
            jsonb_array_length(message), open_bytes, message::text::json, reference::text::json FROM {table}
            WHERE id = %s AND jsonb_array_length(message) > 0 AND jsonb_array_length(reference) =
            jsonb_array_length(jsonb_path_query_array(message, '$[*] ? (@.role == "user")'))
            RETURNING conversation_id)
        UPDATE {table} SET message = '[]', reference = '[]', open_bytes = 0, page_count = page_count + 1
            WHERE id IN (SELECT conversation_id FROM p)""",
    ),
}

# One statement is one snapshot: two would miss a turn that is sealed between them, or show it twice.
READ = """SELECT conversation_id, first_seq, CAST(message AS text), CAST(reference AS text), -1, 0 FROM {page}
    WHERE conversation_id IN (%(ids)s)%(pages)s
    UNION ALL SELECT id, next_seq, CAST(message AS text), CAST(reference AS text), format, revision
    FROM {table} WHERE id IN (%(ids)s) AND tenant_id = %%s"""
IN_RANGE = """ AND first_seq <= %s AND first_seq >= coalesce((SELECT max(first_seq) FROM {page}
    WHERE conversation_id = %s AND first_seq <= %s), 0)"""


@functools.cache
def append_statement(
    engine: str, entries: int, slots: int, sets: tuple[str, ...] = (), *, guarded: bool = False
) -> str:
    """The UPDATE that appends so many entries and slots, without the index's rows.

    Parameters in order: the entries' and slots' texts, their bytes twice, the format they need twice,
    update_time, update_date, a value for each of `sets`, id, tenant_id, the bytes that the open page
    may have before, and the revision if guarded.
    """
    values = {
        "message": [APPEND_ENTRY[engine] % position for position in range(entries)],
        "reference": [APPEND_SLOT[engine]] * slots,
    }
    join = ", ".join if engine == "postgres" else "".join
    # A column that gets nothing isn't named: assigned to itself it would be written anew, all of it.
    appended = "".join(
        APPEND[engine] % {"column": column, "values": join(new)} for column, new in values.items() if new
    )
    return "UPDATE {table} SET " + appended + APPEND_COUNTERS % {
        "count": entries, "sets": "".join(f", {assignment}" for assignment in sets),
        "unless": " AND revision = %s" if guarded else "",
    }
