"""Around the bulk build of the vector index: what it may use of the server, and in which state it leaves the table.

A client sees no processors and no memory of the server's machine, only what its administrator has set. So a build takes
what the graph needs, at most as much as the server's page cache (`shared_buffers`, by custom a quarter of the memory),
and half of the parallel workers that the server has. A build beside an index that serves recalls gets no helpers: it is
in no hurry, and on a small machine the helpers would take the processors from the recalls. Where the machine turns out
to have less (the shared memory of a container is often small), the build is repeated with the server's own settings.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.table import EMBEDDING_COLUMN, MemoryTable

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
    """Estimate the KiB in which the graph is built without spilling: 2 bytes for each number, and 2m links."""
    return int(rows * (2 * dimensions + 2 * m * _NEIGHBOUR_BYTES + _ELEMENT_BYTES) * _SPARE / _KIB)


def build_settings(
    server: ServerResources, *, rows: int, dimensions: int, m: int, serving: bool = False
) -> BuildSettings:
    """What a build of that size is given: of memory never less than the server's own setting, and helpers only where
    no index of the table is `serving` recalls meanwhile.
    """
    workers = 0 if serving else max(server.maintenance_workers, server.parallel_workers // 2)
    wanted = max(graph_kib(rows, dimensions, m), _WORKER_KIB * (workers + 1))
    memory = max(server.maintenance_work_mem, min(wanted, server.shared_buffers))
    return BuildSettings(memory, workers)


async def read_resources(connection: Connection) -> ServerResources:
    """Read the settings of the server that apply to this session."""
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
    connection: Connection, table: MemoryTable, *, m: int, memory: str | None, serving: bool
) -> None:
    """Set this session's memory and workers for the build; `memory` is the setting of a person, who is obeyed."""
    with translated("counting vectors"):
        rows = await connection.fetchval(f"SELECT count(*) FROM {table.qualified} WHERE {EMBEDDING_COLUMN} IS NOT NULL")
    server = await read_resources(connection)
    chosen = build_settings(server, rows=rows, dimensions=table.embedding_dimensions or 0, m=m, serving=serving)
    await _set(connection, memory or f"{chosen.maintenance_work_mem}kB", chosen.maintenance_workers)


async def use_least(connection: Connection) -> None:
    """Set the server's own memory and no parallel workers, for a build that failed because memory was short."""
    with translated("setting the memory of the index build"):
        await connection.execute("RESET maintenance_work_mem")
        await connection.execute("SELECT set_config('max_parallel_maintenance_workers', '0', false)")


async def vacuum_analyze(connection: Connection, table: MemoryTable) -> None:
    """Remove the row versions that a backfill left, and let the planner know the table as it is now.

    Best before the vector index is there, since a vacuum afterwards has to repair its graph for each dead row.
    """
    with translated("vacuuming the table"):
        await connection.execute(f"VACUUM (ANALYZE) {table.qualified}")


async def merge_pending_entries(connection: Connection, table: MemoryTable) -> int:
    """Merge the pending lists of the GIN indexes, which every search reads entry by entry; return the pages merged.

    Writes leave entries there until a vacuum comes by, and updates that only stored a vector leave as many as edits.
    """
    with translated("merging pending entries of the word index"):
        pages: int = await connection.fetchval(
            "SELECT coalesce(sum(gin_clean_pending_list(i.indexrelid::regclass)), 0) FROM pg_index i "
            "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
            "WHERE i.indrelid = to_regclass($1) AND a.amname = 'gin' AND i.indisvalid",
            table.qualified,
        )
    return pages


async def _set(connection: Connection, memory: str, workers: int) -> None:
    with translated("setting the memory of the index build"):
        await connection.execute("SELECT set_config('maintenance_work_mem', $1, false)", memory)
        await connection.execute("SELECT set_config('max_parallel_maintenance_workers', $1, false)", str(workers))
