"""Measures the statistics of the table that BM25 needs, in a few milliseconds whatever the table's size.

Sensitive rows do not count, since the scores of other rows would tell of them. A small table is counted; of a large one
some 20,000 rows are sampled, always from the same pages, so that two processes agree. The length of a text in words is
estimated from its number of distinct lexemes, which is cheap to read, and the number of words for each lexeme in a
thousand rows.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.bm25 import CollectionStatistics

_SAMPLED_ROWS = 20_000
_UNKNOWN = CollectionStatistics(rows=0, mean_length=1.0, mean_bytes=1.0)


async def measure_collection(connection: AnyConnection, table: MemoryTable) -> CollectionStatistics:
    """Measure the rows that are neither deleted nor sensitive, all or a sample of them.

    Raises:
        DatabaseUnreachable: the connection failed.
    """
    with translated("measuring the collection"):
        planned = await connection.fetchval(
            "SELECT reltuples::float8 FROM pg_class WHERE oid = to_regclass($1)", table.qualified
        )
        percent = min(100.0, 100 * _SAMPLED_ROWS / max(planned or 0.0, 1.0))
        row = await connection.fetchrow(_statement(table, percent))
    if row is None or not row["rows"] or not row["lexemes"]:
        return _UNKNOWN
    words = row["lexemes"] * (row["words_per_lexeme"] or 1.0)
    return CollectionStatistics(int(row["rows"] * 100 / percent), words, row["bytes"])


def _statement(table: MemoryTable, percent: float) -> str:
    sampled = f"{table.qualified} m TABLESAMPLE SYSTEM ({percent:.8f}) REPEATABLE (1) WHERE {table.shareable('m')}"
    return f"""
WITH measured AS (
  SELECT length(m.search_vector) AS lexemes,
         (SELECT sum(coalesce(cardinality(u.positions), 1)) FROM unnest(m.search_vector) u) AS words
    FROM {sampled} LIMIT 1000
)
SELECT count(*) AS rows, avg(length(m.search_vector))::float8 AS lexemes,
       avg(pg_column_size(m.search_vector))::float8 AS bytes,
       (SELECT sum(words)::float8 / nullif(sum(lexemes), 0) FROM measured) AS words_per_lexeme
  FROM {sampled}"""
