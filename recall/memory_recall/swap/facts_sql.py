"""How full the standby column is, whether it is indexed, and building its indexes."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.hnsw.build import prepare_build
from memory_recall.hnsw.definition import drop_invalid, hnsw_definition, hnsw_name, inspect_index
from memory_recall.hnsw.repair import IndexParameters, with_less_memory
from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import STANDBY, MemoryTable, quoted
from memory_recall.swap.machine import Fill


async def read_fill(connection: AnyConnection, table: MemoryTable, *, wanted: int | None = None) -> Fill:
    """How many rows may have a vector, how many lack the next model's, and how many were given up.

    The first number takes a scan, so a caller who asks often may hand in the one that it was told before.
    """
    if table.standby_dimensions is None:
        return Fill(0, 0, 0)
    pending = table.pending("m", STANDBY.name)
    with translated("counting rows of the standby column"):
        row = await connection.fetchrow(
            "SELECT coalesce($1::bigint,"
            f" (SELECT count(*) FROM {table.qualified} WHERE {table.shareable()})) AS wanted,"
            f" (SELECT count(*) FROM {table.qualified} m WHERE {pending}) AS missing,"
            f" (SELECT count(*) FROM {table.own(STANDBY.failures)} f JOIN {table.qualified} m ON m.id = f.id"
            f"   WHERE f.next_attempt = 'infinity' AND {pending}"
            f"     AND f.text_hash = {table.own('memory_index_text_hash')}(m.content)) AS given_up",
            wanted,
        )
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    return Fill(row["wanted"], row["missing"] - row["given_up"], row["given_up"])


async def index_valid(connection: AnyConnection, table: MemoryTable) -> bool:
    """Whether a valid vector index serves the standby column."""
    if table.standby_dimensions is None:
        return False
    return (await inspect_index(connection, table, STANDBY.name)).valid


async def queue_indexed(connection: AnyConnection, table: MemoryTable) -> bool:
    """Whether the rows that lack the standby column's vector can be found by an index."""
    with translated("looking up the index of the standby column's queue"):
        valid = await connection.fetchval(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)",
            table.in_schema(STANDBY.pending_index(table.name)),
        )
    return valid is True


async def complete_column(connection: Connection, table: MemoryTable) -> None:
    """What takes long but holds nobody up: validating the constraint, and the index of the queue.

    The column is filled before: an index whose condition names it would have every vector that is stored go through
    all indexes of the table, the active vector index too.
    """
    name = STANDBY.pending_index(table.name)
    indexed = await queue_indexed(connection, table)
    with translated("completing the standby column"):
        await connection.execute("SET lock_timeout = 0")
        await connection.execute(f"ALTER TABLE {table.qualified} VALIDATE CONSTRAINT {STANDBY.constraint}")
        if not indexed:
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {table.in_schema(name)}")
            await connection.execute(
                f'CREATE INDEX CONCURRENTLY "{name}" ON {table.qualified} (id) WHERE {table.pending("", STANDBY.name)}'
            )


async def build_index(connection: Connection, table: MemoryTable, parameters: IndexParameters) -> None:
    """Build it without blocking anybody; what an interrupted build left behind is dropped first."""
    definition = hnsw_definition(table, parameters.m, parameters.ef_construction, STANDBY.name)

    async def work() -> None:
        await drop_invalid(connection, table, STANDBY.name)
        with translated("building the next model's index"):
            await connection.execute("SET lock_timeout = 0")
            await connection.execute(f"CREATE INDEX CONCURRENTLY {quoted(hnsw_name(table, STANDBY.name))} {definition}")

    await prepare_build(connection, table, m=parameters.m, memory=parameters.memory, serving=True)
    await with_less_memory(connection, work)


async def sample_texts(connection: AnyConnection, table: MemoryTable, limit: int) -> list[str]:
    """Texts of rows that may be embedded, chosen by chance, to learn an embedder's rate from."""
    with translated("sampling texts"):
        rows = await connection.fetch(
            f"SELECT content FROM {table.qualified} WHERE {table.shareable()} AND btrim(content) <> '' "
            "ORDER BY random() LIMIT $1",
            limit,
        )
    return [row["content"] for row in rows]
