"""Finding a dataset's documents in order, and those that wait to be parsed: both on a table that has rows already."""

from db.schema_change import create_index

atomic = False


def up(migrator, db):
    create_index(db, "dataset_document_open", "dataset_document", "(update_time) WHERE run = 'RUNNING'")
    create_index(db, "dataset_document_dataset", "dataset_document", "(dataset_id, create_time, id)")
