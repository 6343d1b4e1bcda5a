"""SQL that computes and records the usual cosine of a model."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncpg
import numpy as np

from memory_recall.errors import DatabaseRejected
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.rules.expected import COLUMN_MODEL
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn, quoted

_STATEMENT_TIMEOUT_MS = 30_000  # without the index, each prompt takes a scan of the table


async def has_vectors(connection: AnyConnection, table: MemoryTable, column: VectorColumn) -> bool:
    """Return whether any memory has a vector in this column."""
    with translated("looking for vectors"):
        found: bool = await connection.fetchval(
            f"SELECT EXISTS (SELECT FROM {table.qualified} m WHERE {table.row('m').vector(column)} IS NOT NULL)"
        )
    return found


async def write_usual_cosine(
    connection: AnyConnection, table: MemoryTable, model_id: int, column: VectorColumn, prompts: np.ndarray
) -> None:
    """Record the median of the greatest cosines that the prompts have with any memory; nothing if none has a vector.

    `prompts` is an array (prompts, dimensions) of the model's vectors. Nothing is recorded if the column has another
    model's vectors by now. No sensitive or deleted memory has a vector. The sum is at most .999, because relevance is
    measured along the way from it to 1.

    Raises:
        DatabaseUnreachable: the connection failed.
        DatabaseRejected: Postgres refused the statement, as where the role has no right to record it.
    """
    given = [f"[{','.join(map(repr, vector))}]" for vector in prompts.tolist()]
    vector = table.row("m").vector(column)
    nearness = f"{vector} OPERATOR({quoted(table.vector_schema or 'public')}.<=>) g.prompt"
    models, state = table.own("memory_index_models"), table.own("memory_index_state")
    current = f"{table.own(COLUMN_MODEL)}()" if column is ACTIVE else f"(SELECT {column.role} FROM {state})"
    update = f"""WITH usual AS MATERIALIZED (
  SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY nearest.cosine) AS cosine
    FROM (SELECT unnest($2::text[])::{table.vector_type()} AS prompt) g
   CROSS JOIN LATERAL (
      SELECT 1 - ({nearness})::float8 AS cosine FROM {table.qualified} m
       WHERE {vector} IS NOT NULL ORDER BY {nearness} LIMIT 1) nearest
   WHERE nearest.cosine < 'NaN'
)
UPDATE {models} SET usual_cosine = greatest(-1, least(0.999, cosine)) FROM usual
 WHERE id = $1 AND id = {current} AND cosine IS NOT NULL"""
    with translated("finding how near memories are to prompts that none fits"):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT_MS}")
                await connection.execute(update, model_id, given)
        except asyncpg.QueryCanceledError:
            raise DatabaseRejected(
                "Finding how near memories are to prompts that none fits took more than "
                f"{_STATEMENT_TIMEOUT_MS // 1000} s.",
                "Build the vector index (memory index build).",
            ) from None
        except asyncpg.InsufficientPrivilegeError:
            raise DatabaseRejected(
                "This role may not record the usual cosine.", "Run the script of memory roles again."
            ) from None
