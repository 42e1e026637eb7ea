"""Whether a document's passages are found at all: passages that are made later have to know it too."""


def up(migrator, db):
    prefix = f'"{db.schema}".' if db.schema else ""
    db.execute_sql(f"ALTER TABLE {prefix}dataset_document ADD COLUMN enabled smallint NOT NULL DEFAULT 1")
