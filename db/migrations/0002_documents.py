"""Documents of every format: their files, who parses them, where a passage stands on its page, and vectors.

Vectors are of unit length. They are pgvector's type where PostgreSQL has the extension, else float32 bytes.
"""

import re

DATASET = {
    "avatar": "text", "embedding_model": "varchar(255) NOT NULL DEFAULT ''",
    "dimensions": "integer NOT NULL DEFAULT 0",
}
DOCUMENT = {
    "meta_fields": "text NOT NULL DEFAULT '{}'", "owner": "varchar(255)", "lease_until": "double precision",
    "attempts": "integer NOT NULL DEFAULT 0", "began_at": "double precision",
    "duration": "double precision NOT NULL DEFAULT 0",
}
CHUNK = {
    "positions": "text NOT NULL DEFAULT '[]'", "important_keywords": "text NOT NULL DEFAULT '[]'",
    "questions": "text NOT NULL DEFAULT '[]'", "available": "smallint NOT NULL DEFAULT 1",
    "create_time": "bigint NOT NULL DEFAULT 0",
}


def up(migrator, db):
    is_postgres = db.dialect.name == "postgres"
    statements = [
        f"ALTER TABLE <{table}> ADD COLUMN {name} {kind}"
        for table, columns in (("dataset", DATASET), ("dataset_document", DOCUMENT), ("dataset_chunk", CHUNK))
        for name, kind in columns.items()
    ]
    statements += [
        "CREATE TABLE <dataset_file> (document_id varchar(32) PRIMARY KEY "
        "REFERENCES <dataset_document> (id) ON DELETE CASCADE, content %s NOT NULL)"
        % ("bytea" if is_postgres else "blob"),
        "CREATE TABLE <dataset_vector> (chunk_id varchar(32) PRIMARY KEY "
        "REFERENCES <dataset_chunk> (id) ON DELETE CASCADE, dataset_id varchar(32) NOT NULL, embedding %s NOT NULL)"
        % (vector_type(db) if is_postgres else "blob"),
        "CREATE INDEX dataset_vector_dataset ON <dataset_vector> (dataset_id)",
    ]
    prefix = f'"{db.schema}".' if db.schema else ""
    for statement in statements:
        db.execute_sql(re.sub(r"<(\w+)>", lambda table: prefix + table[1], statement))


def vector_type(db):
    """pgvector's type with its schema; `bytea` where the extension isn't there or may not be made."""
    found = extension_schema(db)
    if found is None:
        may = "SELECT 1 FROM pg_available_extension_versions WHERE name = 'vector' AND " \
              "(trusted OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)) AND " \
              "has_database_privilege(current_database(), 'CREATE')"
        if db.execute_sql(may).fetchone() is None:
            return "bytea"
        db.execute_sql("CREATE EXTENSION IF NOT EXISTS vector")
        found = extension_schema(db)
    return f'"{found}".vector'


def extension_schema(db):
    row = db.execute_sql(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    ).fetchone()
    return row and row[0]
