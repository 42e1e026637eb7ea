"""Mending datasets: counters from what is there, and rows that belong to nothing."""

from db.database import change, connection, transaction
from services.errors import NotFound
from services.knowledge.datasets import lock_dataset
from services.principal import Principal

# Which row belongs to which by which column. The engines see to it, unless somebody wrote past their keys.
BELONGS = (
    ("dataset_document", "dataset", "dataset_id"), ("dataset_chunk", "dataset_document", "document_id"),
    ("dataset_file", "dataset_document", "document_id"), ("dataset_vector", "dataset_chunk", "chunk_id"),
)


def recount(principal: Principal, dataset_id: str) -> None:
    """Both counters of a dataset, and its documents' own, from the rows, while the dataset's row is held."""
    with connection(), transaction():
        try:
            lock_dataset(principal, dataset_id)
        except NotFound:
            return  # deleted meanwhile
        change("""UPDATE {dataset_document} AS d SET
            chunk_count = (SELECT count(*) FROM {dataset_chunk} c WHERE c.document_id = d.id)
            WHERE d.dataset_id = %s""", [dataset_id])
        change("""UPDATE {dataset} AS d SET
            document_count = (SELECT count(*) FROM {dataset_document} f WHERE f.dataset_id = d.id),
            chunk_count = (SELECT coalesce(sum(f.chunk_count), 0) FROM {dataset_document} f WHERE f.dataset_id = d.id)
            WHERE d.id = %s""", [dataset_id])


def erase_orphans() -> None:
    """Nothing leads to these rows any more."""
    with connection(), transaction():
        for table, owner, column in BELONGS:
            change(f"""DELETE FROM {{{table}}} WHERE NOT EXISTS
                (SELECT 1 FROM {{{owner}}} o WHERE o.id = {{{table}}}.{column})""")
