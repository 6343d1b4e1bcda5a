"""Measures which share of the true nearest neighbours the vector index finds, on a sample of stored vectors.

The true neighbours come from an exact search. The index is searched with the same `hnsw.ef_search` as in a recall of
one partition. Neighbours are compared by distance, since several memories with the same text are equally near. A row
that gets another vector between the two searches, or none, is left out.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.hnsw.definition import IndexFacts
from memory_recall.hnsw.search_effort import SearchedGraph
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.table import ACTIVE, MemoryTable, quoted

_DEPTH = 10
_ROUNDING = 1e-6


@dataclass(frozen=True)
class _Found:
    """The distances from a row to its nearest neighbours, and a hash of its vector; None if it has no vector."""

    vector: bytes | None
    distances: list[float]


async def measure_index(connection: Connection, table: MemoryTable, facts: IndexFacts, *, sample: int) -> float | None:
    """Return the mean recall@10 over a random sample of stored vectors.

    The result is None if no vectors are stored, or if every row of the sample has changed meanwhile.
    """
    distance = f"OPERATOR({quoted(table.vector_schema or 'public')}.<=>)"
    key = table.row().id
    name = table.vector_name(ACTIVE)
    vector = f"(SELECT {name} FROM {table.qualified} WHERE {key} = $1)"
    distance_to_row = f"{name} {distance} {vector}"
    nearest = (
        f"SELECT sha256(convert_to({vector}::text, 'UTF8')) AS vector, "
        # From and to a vector of length zero the distance is NaN.
        f"array_agg(distance) FILTER (WHERE distance < 'NaN') AS distances "
        f"FROM (SELECT {distance_to_row} AS distance FROM {table.qualified} "
        f"WHERE {name} IS NOT NULL ORDER BY {distance_to_row} LIMIT {_DEPTH}) nearest"
    )
    with translated("measuring the vector index"):
        ids = await connection.fetch(
            f"SELECT {table.key.shown(key)} AS id FROM {table.qualified} WHERE {name} IS NOT NULL "
            "ORDER BY random() LIMIT $1",
            sample,
        )
        rows = await connection.fetchval(f"SELECT {table.estimated_rows(largest_partition=True)}")
        graph = SearchedGraph(rows, facts.m or 0, facts.ef_construction or 0)
        effort = graph.ef_search(_DEPTH)
        sampled = [row["id"] for row in ids]
        found = await _search(connection, nearest, sampled, exact=False, effort=effort)
        true = await _search(connection, nearest, sampled, exact=True, effort=effort)
    unchanged = [one for one in sampled if true[one].distances and true[one].vector == found[one].vector]
    shares = [_share(found[one].distances, true[one].distances) for one in unchanged]
    return sum(shares) / len(shares) if shares else None


def _share(found: list[float], true: list[float]) -> float:
    """Return the number of rows as near as the farthest true neighbour, divided by the number of true neighbours."""
    farthest = max(true) + _ROUNDING
    return sum(distance <= farthest for distance in found) / len(true)


async def _search(
    connection: Connection, nearest: str, ids: list[MemoryId], *, exact: bool, effort: int
) -> dict[MemoryId, _Found]:
    results: dict[MemoryId, _Found] = {}
    async with connection.transaction(readonly=True):
        await connection.execute("SELECT set_config('hnsw.ef_search', $1, true)", str(effort))
        # A plan that was kept from the one search would be used for the other.
        await connection.execute("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
        for method in ("enable_indexscan", "enable_seqscan"):
            off = (method == "enable_indexscan") == exact
            await connection.execute("SELECT set_config($1, $2, true)", method, "off" if off else "on")
        for key in ids:
            row = await connection.fetchrow(nearest, key)
            assert row is not None  # noqa: S101  (an aggregate always yields one row)
            results[key] = _Found(row["vector"], list(row["distances"] or ()))
    return results
