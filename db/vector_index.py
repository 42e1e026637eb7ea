"""Vectors of dataset chunks, of unit length, and the nearest of them to a question's.

Every vector is compared, none is approximated, so that both engines give the same hits: pgvector does it
where PostgreSQL has it, numpy elsewhere.
"""

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from db.database import change, database, dialect, fetch, render
from db.sqlite import SQLITE
from db.text_index import Scope, among, listed

try:
    import numpy
except ImportError:  # an extra: PostgreSQL with pgvector needs none
    numpy = None  # type: ignore[assignment]

_BATCH = 4_096  # vectors in memory at once
_INSERTED = 200  # rows a statement
MOST_DIMENSIONS = 16_000  # of a vector: pgvector takes no more
_DIGITS = 6  # beyond them the engines' sums differ


class VectorsUnavailable(RuntimeError):
    """Vectors are kept as bytes here and numpy, which compares them, isn't installed."""


def vector_type() -> str | None:
    """pgvector's type with its schema; None where vectors are bytes."""
    if dialect() is SQLITE:
        return None
    kept: dict[str, str] = database.obj.rendered
    if "vector type" not in kept:
        ((schema, name),) = fetch(
            "SELECT udt_schema, udt_name FROM information_schema.columns WHERE table_schema = %s "
            "AND table_name = 'dataset_vector' AND column_name = 'embedding'", [database.obj.schema],
        )
        kept["vector type"] = f'"{schema}".vector' if name == "vector" else ""
    return kept["vector type"] or None


def unit(vector: "array[float]") -> bytes:
    """The vector at length 1, as float32 in native order; one without a length stays as it is."""
    length = math.hypot(*vector) or 1.0
    return array("f", [number / length for number in vector]).tobytes()


def is_available() -> bool:
    """Whether vectors can be compared here."""
    return numpy is not None or vector_type() is not None


def vector_text(vector: bytes) -> str:
    """pgvector's way to write a vector (float32, native order). Raises ValueError where it is cut off."""
    return json.dumps(array("f", vector).tolist())


def insert_vectors(dataset_id: str, rows: Sequence[tuple[str, bytes]]) -> None:
    """Keep a vector (float32, native order) for each of these chunks."""
    kind = vector_type()
    mark = f"(%s, %s, %s{'::' + kind if kind else ''})"
    for begin in range(0, len(rows), _INSERTED):
        batch = rows[begin : begin + _INSERTED]
        change(
            "INSERT INTO {dataset_vector} (chunk_id, dataset_id, embedding) VALUES " + ", ".join([mark] * len(batch)),
            [each for id, vector in batch for each in (id, dataset_id, _value(vector, kind))],
        )


def delete_vectors(ids: Sequence[str]) -> None:
    """Forget the vectors of these chunks; those of a chunk that goes, go with it."""
    change(f"DELETE FROM {{dataset_vector}} WHERE chunk_id {among()}", [listed(ids)])


def dimensions(tenant_id: str, dataset_ids: Sequence[str]) -> set[int]:
    """How many numbers the vectors of these datasets have."""
    statement = f"SELECT dimensions FROM {{dataset}} WHERE dimensions > 0 AND tenant_id = %s AND id {among()}"
    return {count for (count,) in fetch(statement, [tenant_id, listed(dataset_ids)])}


def nearest(scope: Scope, vector: bytes, limit: int) -> dict[str, float]:
    """The chunks whose vectors are nearest to `vector`, with their cosine similarity, best first.

    Vectors of another dimension aren't compared. Raises VectorsUnavailable.
    """
    if scope.is_empty() or limit < 1:
        return {}
    return _best(_near(scope.condition(), scope.parameters(), vector, limit), limit)


def similarities(tenant_id: str, ids: Sequence[str], vector: bytes) -> dict[str, float]:
    """The cosine similarity to `vector` of these chunks, of those that have a vector."""
    if not ids:
        return {}
    condition = f" AND c.id {among()}"
    return _best(_near(condition, [tenant_id, listed(ids)], vector, len(ids)), len(ids))


def odd_vectors() -> list[tuple[str, int, int]]:
    """Datasets with vectors of another dimension than their own: id, that dimension, how many such vectors."""
    kind = vector_type()
    measured = f"{kind.removesuffix('.vector')}.vector_dims(v.embedding)" if kind else "length(v.embedding) / 4"
    return fetch(f"""SELECT d.id, d.dimensions, count(*) FROM {{dataset_vector}} v JOIN {{dataset}} d
        ON d.id = v.dataset_id WHERE {measured} <> d.dimensions GROUP BY d.id, d.dimensions""")


def _near(condition: str, parameters: list[Any], vector: bytes, limit: int) -> Iterator[tuple[str, float]]:
    source = "FROM {dataset_vector} v JOIN {dataset_chunk} c ON c.id = v.chunk_id WHERE c.tenant_id = %s" + condition
    kind = vector_type()
    if kind is None:
        yield from _compared(source, parameters, vector)
        return
    schema = kind.removesuffix(".vector")
    measure = f"v.embedding OPERATOR({schema}.<#>) %s::{kind}"
    value, dimensions = _value(vector, kind), len(vector) // 4
    yield from fetch(
        f"SELECT c.id, -({measure}) {source} AND {schema}.vector_dims(v.embedding) = %s ORDER BY {measure} LIMIT %s",
        [value, *parameters, dimensions, value, limit],
    )


def _compared(source: str, parameters: list[Any], vector: bytes) -> Iterator[tuple[str, float]]:
    _check_numpy()
    wanted = numpy.frombuffer(vector, numpy.float32)
    cursor = database.execute_sql(render(f"SELECT c.id, v.embedding {source}"), parameters)
    while rows := cursor.fetchmany(_BATCH):
        same = [(id, bytes(kept)) for id, kept in rows if len(kept) == len(vector)]
        if same:
            kept = numpy.frombuffer(b"".join(kept for _, kept in same), numpy.float32).reshape(len(same), -1)
            yield from zip((id for id, _ in same), (kept @ wanted).tolist(), strict=True)


def _best(found: Iterator[tuple[str, float]], limit: int) -> dict[str, float]:
    rounded = sorted(((id, round(similarity, _DIGITS)) for id, similarity in found), key=lambda hit: (-hit[1], hit[0]))
    return dict(rounded[:limit])


def _value(vector: bytes, kind: str | None) -> Any:
    return vector_text(vector) if kind else vector


def _check_numpy() -> None:
    if numpy is None:
        raise VectorsUnavailable(
            "vectors need numpy here: install chatkeep[vectors], or use PostgreSQL with the extension `vector`"
        )
