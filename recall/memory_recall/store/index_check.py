"""How many of the true nearest neighbours the vector index finds, sampled against an exact search."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.store.connection import Connection
from memory_recall.store.table import EMBEDDING_COLUMN, MemoryTable, quoted
from memory_recall.store.translation import translated

_DEPTH = 10
_EF_SEARCH = 50


async def measure_index(connection: Connection, table: MemoryTable, *, sample: int) -> float | None:
    """Mean recall@10 over stored vectors chosen by chance; None when there are none."""
    distance = f"OPERATOR({quoted(table.vector_schema or 'public')}.<=>)"
    nearest = (
        f"SELECT array_agg(id) FROM (SELECT id FROM {table.qualified} WHERE {EMBEDDING_COLUMN} IS NOT NULL "
        f"ORDER BY {EMBEDDING_COLUMN} {distance} "
        f"(SELECT {EMBEDDING_COLUMN} FROM {table.qualified} WHERE id = $1) LIMIT {_DEPTH}) nearest"
    )
    with translated("measuring the vector index"):
        ids = await connection.fetch(
            f"SELECT id FROM {table.qualified} WHERE {EMBEDDING_COLUMN} IS NOT NULL ORDER BY random() LIMIT $1", sample
        )
        found = await _search(connection, nearest, [row["id"] for row in ids], exact=False)
        true = await _search(connection, nearest, [row["id"] for row in ids], exact=True)
    if not ids:
        return None
    return sum(len(found[key] & true[key]) / len(true[key]) for key in true) / len(true)


async def _search(connection: Connection, nearest: str, ids: list[int], *, exact: bool) -> dict[int, set[int]]:
    results: dict[int, set[int]] = {}
    async with connection.transaction(readonly=True):
        await connection.execute(f"SELECT set_config('hnsw.ef_search', '{_EF_SEARCH}', true)")
        for method in ("enable_indexscan", "enable_seqscan"):
            off = (method == "enable_indexscan") == exact
            await connection.execute("SELECT set_config($1, $2, true)", method, "off" if off else "on")
        for key in ids:
            results[key] = set(await connection.fetchval(nearest, key) or ())
    return results
