"""Prepares the build of the vector index: chooses its memory and workers, and vacuums the table before it.

A client sees only the server's settings, not the processors and the memory of its machine. Therefore a build gets the
memory that the graph needs, at most as much as the server's page cache (`shared_buffers`, by custom a quarter of the
memory), and half of the server's parallel workers. A build beside an index that serves recalls gets no parallel
workers, because on a small machine they would take the processors from the recalls. If the build runs out of memory
(the shared memory of a container is often small), it is repeated with the server's own `maintenance_work_mem`.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn

_KIB = 1024
_WORKER_KIB = 32 * _KIB  # Postgres starts no more parallel workers than have this much each
_ELEMENT_BYTES = 200  # of pgvector's graph for each vector beside the vector and its neighbours
_NEIGHBOUR_BYTES = 24
_SPARE = 1.25


@dataclass(frozen=True)
class ServerResources:
    """The memory in KiB and the numbers of parallel workers that the server's settings allow."""

    maintenance_work_mem: int
    shared_buffers: int
    maintenance_workers: int
    parallel_workers: int


@dataclass(frozen=True)
class BuildSettings:
    """The memory in KiB and the number of parallel workers of one build."""

    maintenance_work_mem: int
    maintenance_workers: int


def graph_kib(rows: int, dimensions: int, m: int) -> int:
    """Estimate the memory in KiB of the graph: each vector takes 2 bytes per dimension, and has 2 * `m` links."""
    return int(rows * (2 * dimensions + 2 * m * _NEIGHBOUR_BYTES + _ELEMENT_BYTES) * _SPARE / _KIB)


def build_settings(
    server: ServerResources, *, rows: int, dimensions: int, m: int, serving: bool = False
) -> BuildSettings:
    """Choose memory and parallel workers for an index build over `rows` vectors.

    The memory is never less than the server's own setting. With `serving` True, another index serves recalls during the
    build, so there are no parallel workers.
    """
    workers = 0 if serving else max(server.maintenance_workers, server.parallel_workers // 2)
    wanted = max(graph_kib(rows, dimensions, m), _WORKER_KIB * (workers + 1))
    memory = max(server.maintenance_work_mem, min(wanted, server.shared_buffers))
    return BuildSettings(memory, workers)


async def read_resources(connection: Connection) -> ServerResources:
    """Read the server's settings of memory and parallel workers that apply to this session."""
    with translated("reading the server's settings"):
        row = await connection.fetchrow(
            "SELECT pg_size_bytes(current_setting('maintenance_work_mem')) / 1024 AS maintenance_work_mem, "
            "pg_size_bytes(current_setting('shared_buffers')) / 1024 AS shared_buffers, "
            "current_setting('max_parallel_maintenance_workers')::int AS maintenance_workers, "
            "current_setting('max_parallel_workers')::int AS parallel_workers"
        )
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    return ServerResources(**dict(row))


async def prepare_build(
    connection: Connection,
    table: MemoryTable,
    column: VectorColumn = ACTIVE,
    *,
    m: int,
    memory: str | None,
    serving: bool,
) -> None:
    """Set memory and parallel workers of this session for the build of the index of a column.

    If `memory` is given, it is used unchanged.
    """
    with translated("counting vectors"):
        rows = await connection.fetchval(
            f"SELECT count(*) FROM {table.qualified} WHERE {table.vector_name(column)} IS NOT NULL"
        )
    server = await read_resources(connection)
    chosen = build_settings(server, rows=rows, dimensions=table.dimensions(column) or 0, m=m, serving=serving)
    await _set(connection, memory or f"{chosen.maintenance_work_mem}kB", chosen.maintenance_workers)


async def use_least(connection: Connection) -> None:
    """After a build ran out of memory, reset `maintenance_work_mem` and turn off parallel workers."""
    with translated("setting the memory of the index build"):
        await connection.execute("RESET maintenance_work_mem")
        await connection.execute("SELECT set_config('max_parallel_maintenance_workers', '0', false)")


async def vacuum_analyze(connection: Connection, table: MemoryTable) -> None:
    """Remove the dead row versions that a backfill left, and update the planner's statistics.

    This is best done before the vector index exists, since a later vacuum has to repair its graph for each dead row.
    """
    with translated("vacuuming the table"):
        await connection.execute(f"VACUUM (ANALYZE) {table.qualified}")


async def merge_pending_entries(connection: Connection, table: MemoryTable) -> int:
    """Merge the pending list of each GIN index of the table into that index; return the number of pages merged.

    The GIN indexes of a partitioned table are those of its partitions.

    Every search reads the whole pending list. Each write adds entries to it, even a write that only stores a vector.
    Without this function the entries would stay in the list until the next vacuum.
    """
    with translated("merging pending entries of the word index"):
        pages: int = await connection.fetchval(
            "SELECT coalesce(sum(gin_clean_pending_list(i.indexrelid::regclass)), 0) FROM pg_index i "
            "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
            "WHERE (i.indrelid = to_regclass($1)::oid OR i.indrelid IN (SELECT inhrelid FROM pg_inherits "
            "WHERE inhparent = to_regclass($1)::oid)) AND c.relkind = 'i' AND a.amname = 'gin' AND i.indisvalid",
            table.qualified,
        )
    return pages


async def _set(connection: Connection, memory: str, workers: int) -> None:
    with translated("setting the memory of the index build"):
        await connection.execute("SELECT set_config('maintenance_work_mem', $1, false)", memory)
        await connection.execute("SELECT set_config('max_parallel_maintenance_workers', $1, false)", str(workers))
