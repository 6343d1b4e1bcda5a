"""Measures the table statistics that BM25 needs, in a few milliseconds even for a large table.

Sensitive rows are not counted, since the scores of other rows would otherwise reveal their terms. Of a small table all
rows are read. Of a large table some 20,000 rows are sampled, always from the same pages, so that all processes get the
same statistics. The number of words in a text is estimated: its number of distinct lexemes, which is cheap to read, is
multiplied by the words per lexeme of a thousand rows.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.bm25 import CollectionStatistics

_SAMPLED_ROWS = 20_000
_UNKNOWN = CollectionStatistics(rows=0, mean_length=1.0, mean_bytes=1.0)
_USUAL_LENGTH = 50.0  # of memories, in words
_USUAL_BYTES = 500.0  # of the words of such a memory


def assumed_collection(rows: float) -> CollectionStatistics:
    """Return what is assumed of about `rows` rows that could not be measured: that their texts are of usual length."""
    return CollectionStatistics(round(rows), _USUAL_LENGTH, _USUAL_BYTES)


async def measure_collection(connection: AnyConnection, table: MemoryTable) -> CollectionStatistics:
    """Measure the rows that are neither deleted nor sensitive, either all of them or a sample.

    If the sample of a large table has none of them, or none that has words yet, it is not known how few there are:
    what is assumed of the table is returned.

    Raises:
        DatabaseUnreachable: the connection failed.
    """
    with translated("measuring the collection"):
        planned = await connection.fetchval(f"SELECT {table.estimated_rows()}")
        percent = min(100.0, 100 * _SAMPLED_ROWS / max(planned or 0.0, 1.0))
        row = await connection.fetchrow(sampling_statement(table, percent))
    if row is None or not row["rows"] or not row["lexemes"]:
        return assumed_collection(planned) if percent < 100 else _UNKNOWN
    words = row["lexemes"] * (row["words_per_lexeme"] or 1.0)
    return CollectionStatistics(int(row["rows"] * 100 / percent), words, row["bytes"])


def sampling_statement(table: MemoryTable, percent: float) -> str:
    """Return the statement that measures a sample of `percent` of the table's pages (above 0 to 100)."""
    words = table.row("m").search_vector
    sampled = f"{table.qualified} m TABLESAMPLE SYSTEM ({percent:.8f}) REPEATABLE (1) WHERE {table.shareable('m')}"
    return f"""
WITH measured AS (
  SELECT length({words}) AS lexemes,
         (SELECT sum(coalesce(cardinality(u.positions), 1)) FROM unnest({words}) u) AS words
    FROM {sampled} LIMIT 1000
)
SELECT count(*) AS rows, avg(length({words}))::float8 AS lexemes,
       avg(pg_column_size({words}))::float8 AS bytes,
       (SELECT sum(words)::float8 / nullif(sum(lexemes), 0) FROM measured) AS words_per_lexeme
  FROM {sampled}"""
