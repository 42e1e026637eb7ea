"""Datasets' rules: counters agree with what is there, every row belongs to something, vectors can be compared,
and what waits to be parsed has somebody who parses. The counters and what belongs to nothing can be mended."""

from collections.abc import Iterator

from db.database import change, connection, fetch, transaction
from db.models import date_of, now_ms
from db.vector_index import odd_vectors
from services.doctor.finding import FIX, Finding
from services.errors import NotFound
from services.knowledge.datasets import lock_dataset
from services.principal import Principal

LONG = 600  # seconds that documents wait before somebody should look
RECOUNTED = {"document_count", "chunk_count"}
# Which row belongs to which by which column. The engines see to it, unless somebody wrote past their keys.
_BELONGS = (
    ("dataset_document", "dataset", "dataset_id"), ("dataset_chunk", "dataset_document", "document_id"),
    ("dataset_file", "dataset_document", "document_id"), ("dataset_vector", "dataset_chunk", "chunk_id"),
)

_COUNTS = """SELECT d.id, d.document_count, coalesce(f.files, 0), d.chunk_count, coalesce(c.chunks, 0) FROM {dataset} d
    LEFT JOIN (SELECT dataset_id, count(*) AS files FROM {dataset_document} GROUP BY dataset_id) f
        ON f.dataset_id = d.id
    LEFT JOIN (SELECT dataset_id, count(*) AS chunks FROM {dataset_chunk} GROUP BY dataset_id) c
        ON c.dataset_id = d.id
    WHERE d.document_count <> coalesce(f.files, 0) OR d.chunk_count <> coalesce(c.chunks, 0)"""
_DOCUMENT_COUNTS = """SELECT d.dataset_id, d.id, d.chunk_count, coalesce(c.chunks, 0) FROM {dataset_document} d
    LEFT JOIN (SELECT document_id, count(*) AS chunks FROM {dataset_chunk} GROUP BY document_id) c
        ON c.document_id = d.id
    WHERE d.chunk_count <> coalesce(c.chunks, 0)"""
_UNPARSED = """SELECT dataset_id, count(*), min(update_time) FROM {dataset_document}
    WHERE run = 'RUNNING' AND update_time < %s AND NOT EXISTS (SELECT 1 FROM {dataset_document} d
        WHERE d.lease_until > {now} - 60 OR d.began_at > {now} - %s)
    GROUP BY dataset_id"""


def examine_datasets() -> Iterator[Finding]:
    with connection():
        yield from _counters()
        for table, owner, column in _BELONGS:
            for (id,) in fetch(f"""SELECT DISTINCT {column} FROM {{{table}}} t
                    WHERE NOT EXISTS (SELECT 1 FROM {{{owner}}} o WHERE o.id = t.{column})"""):
                yield Finding("orphans", id, f"{table} rows of a {owner} that is gone", FIX)
        for id, dimensions, count in odd_vectors():
            yield Finding("dimensions", id, f"{count} vectors have not the dataset's {dimensions} dimensions, "
                          "so that no search compares them", "parse the dataset's documents again")
        for id, count, since in fetch(_UNPARSED, [now_ms() - LONG * 1000, LONG]):
            yield Finding("parsing", id, f"{count} documents wait since {date_of(since)} UTC and nobody parses any",
                          "start a server: it parses what waits")


def _counters() -> Iterator[Finding]:
    for id, documents, there, chunks, held in fetch(_COUNTS):
        if documents != there:
            yield Finding("document_count", id, f"document_count is {documents}, there are {there} documents", FIX)
        if chunks != held:
            yield Finding("chunk_count", id, f"chunk_count is {chunks}, there are {held} passages", FIX)
    for id, document_id, chunks, held in fetch(_DOCUMENT_COUNTS):
        yield Finding("chunk_count", id, f"chunk_count of document {document_id} is {chunks}, it has {held} passages",
                      FIX)


def recount(dataset_id: str) -> None:
    """Both counters of a dataset, and its documents' own, from the rows, while the dataset's row is held."""
    with connection(), transaction():
        try:
            lock_dataset(Principal.system(), dataset_id)
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
        for table, owner, column in _BELONGS:
            change(f"""DELETE FROM {{{table}}} WHERE NOT EXISTS
                (SELECT 1 FROM {{{owner}}} o WHERE o.id = {{{table}}}.{column})""")
