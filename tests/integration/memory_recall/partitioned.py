"""A partitioned table of memories with four users, each of whom has a partition."""

import asyncpg

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench

USERS = ("ada", "bob", "cleo", "dan")
_COLUMNS = """
    content text NOT NULL, category varchar(50) DEFAULT 'facts', tags text DEFAULT '',
    expanded_keywords text DEFAULT '', importance real DEFAULT 0.5, is_sensitive boolean NOT NULL DEFAULT false,
    user_id varchar(100) NOT NULL DEFAULT 'ada', deleted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
    search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED
"""
PARTITIONED_TABLE = [
    f"CREATE TABLE memories (id serial, {_COLUMNS}, PRIMARY KEY (id, user_id)) PARTITION BY LIST (user_id)",
    *(f"CREATE TABLE memories_{user} PARTITION OF memories FOR VALUES IN ('{user}')" for user in USERS),
    "CREATE INDEX idx_memories_search ON memories USING gin (search_vector)",
]
_PARTS = (
    "SELECT x.indrelid::regclass::text AS partition, c.relname AS name, x.indisvalid AS valid, "
    "c.reloptions AS options FROM pg_inherits h JOIN pg_index x ON x.indexrelid = h.inhrelid "
    "JOIN pg_class c ON c.oid = x.indexrelid WHERE h.inhparent = to_regclass($1) ORDER BY 1"
)


async def create_partitioned(database: Database, request: MigrationRequest) -> None:
    """Create the table and migrate it."""
    async with database.connection() as connection:
        for statement in PARTITIONED_TABLE:
            await connection.execute(statement)
    await migrate(DsnText(database.dsn), request)


async def fill_partitions(bench: Workbench, rows: int = 10) -> None:
    """Store as many memories of each user."""
    async with bench.database.connection() as connection:
        await connection.executemany(
            "INSERT INTO memories (content, user_id) VALUES ($1, $2)",
            [(f"text {number} of {user}", user) for user in USERS for number in range(rows)],
        )


async def parts_of(bench: Workbench, index: str) -> list[asyncpg.Record]:
    """Return the parts of an index: the partition, the part's name, whether it is valid, and its options."""
    async with bench.database.connection() as connection:
        return list(await connection.fetch(_PARTS, index))
