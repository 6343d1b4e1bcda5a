"""Creates tables with embedded rows and a vector index, and claims each table for one MemoryIndex.

The tables are as the Jobs of a MemoryIndex would leave them, but three Jobs for each of five hundred tables would take
an hour. The script runs in a pod of the operator's image. Standard input holds, as JSON, the number of rows, and the
name and claim of each table. The name of each finished table is printed on a line.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import asyncpg

from memory_recall.embedding.profiles import profile
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.settings import MIGRATIONS

_INSERT = """
INSERT INTO {table} (content, embedding)
SELECT 'note ' || id, vector::real[]::halfvec
  FROM (SELECT id, array_agg(random() - 0.5) AS vector
          FROM generate_series(1, {rows}) AS id, generate_series(1, {dimensions})
         GROUP BY id) AS rows
"""


async def fill(dsn: str, entry: dict[str, Any], rows: int) -> None:
    """Create the table of `entry` with its claim, `rows` embedded rows, and a vector index."""
    table, claim = entry["table"], TableClaim(**entry["claim"])
    model = profile(os.environ["MEMORY_MODEL"])
    await migrate(DsnText(dsn), MigrationRequest(table, model, MIGRATIONS, claim=claim))
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_INSERT.format(table=table, dimensions=model.dimensions, rows=rows))
    finally:
        await connection.close()
    await build_index(DsnText(dsn), table, IndexParameters())


async def fill_all(dsn: str, wanted: dict[str, Any]) -> None:
    """Create all tables, one after the other."""
    for entry in wanted["tables"]:
        await fill(dsn, entry, wanted["rows"])
        print(entry["table"], flush=True)


if __name__ == "__main__":
    URI = Path(os.environ["MEMORY_DATABASE_URL_FILE"]).read_text(encoding="utf-8").strip()
    asyncio.run(fill_all(URI, json.load(sys.stdin)))
