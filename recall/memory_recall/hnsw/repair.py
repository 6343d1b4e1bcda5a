"""Builds the vector index, and rebuilds it when its parameters have changed or its recall is too low.

While a rebuild runs, the old index serves recalls. The commands, the sync worker and the operator's Jobs call these
functions; whether to build or rebuild is decided here alone.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memory_recall.errors import DatabaseUnreachable, LockNotAvailable
from memory_recall.hnsw.build import merge_pending_entries, prepare_build, use_least, vacuum_analyze
from memory_recall.hnsw.check import measure_index
from memory_recall.hnsw.definition import (
    DEFAULT_EF_CONSTRUCTION,
    DEFAULT_M,
    IndexFacts,
    drop_invalid,
    hnsw_definition,
    hnsw_name,
    inspect_index,
)
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.names import index_name
from memory_recall.schema.requirements.taken_names import require_own_names
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.rules.expected import REBUILT
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn, quoted
from memory_recall.schema.table_locks import Work, locked_session, wait_for_maintenance

_LOCK_KEY = 0x6D656D6F_72796963  # "memoryic"; one rebuild per database
DEFAULT_SAMPLE = 50


@dataclass(frozen=True)
class IndexParameters:
    """The wanted parameters of the index. `memory` is a `maintenance_work_mem` that a person has set, else None."""

    m: int = DEFAULT_M
    ef_construction: int = DEFAULT_EF_CONSTRUCTION
    memory: str | None = None


@dataclass(frozen=True)
class IndexReport:
    """The index and its measured recall.

    `recall` and `recall_after_repair` are the share of the true neighbours that the index finds, before and after a
    repair; the latter is None if nothing was repaired.
    """

    facts: IndexFacts
    recall: float | None
    recall_after_repair: float | None = None


def needs_repair(recall: float | None, threshold: float) -> bool:
    """Return whether the recall of an index is below the threshold.

    Return False for a recall of None, which was not measured.
    """
    return recall is not None and recall < threshold


async def build_index(
    source: DsnSource, table: str, parameters: IndexParameters, *, lock_seconds: float = 600
) -> IndexFacts:
    """Build the vector index without blocking other sessions, unless a valid one with these parameters exists.

    If our own index is invalid, it is dropped and built again; if it has other parameters, a new one replaces it. A new
    one that an earlier call has built, and could not put into the place of the old one, is not built again. An index
    that another program created under a name of its own is used as it is.

    Raises:
        SchemaBehind: the migrations have not run.
        SchemaUnsupported: something of others has a name of ours.
        LockNotAvailable: another session migrates or builds for longer than `lock_seconds`, or the table stayed in use
            for as long when a new index was to replace the old one.
    """
    async with locked_session(source, table, lock_seconds, Work.INDEX_BUILD) as connection:
        memories = await require_schema(connection, table)
        await require_own_names(connection, memories)
        await _run(connection, "SET lock_timeout = 0")  # what follows waits for others without making anybody wait
        await drop_invalid(connection, memories)
        changes = TableChanges(connection, memories, lock_seconds)
        facts = await inspect_index(connection, memories)
        if facts.differs(parameters.m, parameters.ef_construction) and await _has_replacement(changes, parameters):
            await _exchange(changes)
        await _drop_replacement(changes)
        facts = await inspect_index(connection, memories)
        if not facts.valid:
            await vacuum_analyze(connection, memories)
        await prepare_build(connection, memories, m=parameters.m, memory=parameters.memory, serving=facts.valid)
        if facts.differs(parameters.m, parameters.ef_construction):
            await with_less_memory(connection, lambda: create_index(changes, _replacement(memories), parameters))
            await _exchange(changes)
        elif not facts.valid:
            await with_less_memory(connection, lambda: create_index(changes, hnsw_name(memories), parameters))
        await merge_pending_entries(connection, memories)  # the lexical index is to be as quick to read as the new one
        return await inspect_index(connection, memories)


async def check_and_repair(
    connection: Connection, table: MemoryTable, parameters: IndexParameters, *, sample: int, repair_below: float | None
) -> IndexReport:
    """Measure the index, and rebuild it if it finds less than `repair_below` of the true neighbours.

    Raises:
        LockNotAvailable: the index needs a repair, and another session is repairing an index.
    """
    facts = await inspect_index(connection, table)
    recall = await measure_index(connection, table, facts, sample=sample) if facts.valid else None
    if facts.name is None or repair_below is None or not needs_repair(recall, repair_below):
        return IndexReport(facts, recall)
    with translated("taking the lock of index repairs"):
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
            raise LockNotAvailable("Another session repairs the vector index.", "Let it end.")
    await prepare_build(connection, table, m=parameters.m, memory=parameters.memory, serving=True)
    name = table.in_schema(facts.name)
    await with_less_memory(connection, lambda: _run(connection, f"REINDEX INDEX CONCURRENTLY {name}"))
    await drop_invalid(connection, table)
    with translated("releasing the lock of index repairs"):
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK_KEY)
    after = await measure_index(connection, table, facts, sample=sample)
    return IndexReport(await inspect_index(connection, table), recall, after)


async def with_less_memory(connection: Connection, build: Callable[[], Awaitable[None]]) -> None:
    """Run a build. If memory runs short, run it again with the server's own memory and no parallel workers."""
    try:
        await build()
    except DatabaseUnreachable:
        if connection.is_closed():
            raise
        await use_least(connection)
        await build()


async def create_index(
    changes: TableChanges, name: str, parameters: IndexParameters, column: VectorColumn = ACTIVE
) -> None:
    """Create the index `name`, after dropping an invalid index that a failed attempt left under this name.

    On a partitioned table, a build with the same parameters that was interrupted goes on. The session has no limit of
    waiting for locks.

    Raises:
        LockNotAvailable: a partitioned table was in use by other sessions for longer than `changes` allows.
    """
    connection, table = changes.connection, changes.table
    definition = hnsw_definition(table, parameters.m, parameters.ef_construction, column)
    if not table.is_partitioned:
        await _run(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {table.in_schema(name)}")
        await _run(connection, f"CREATE INDEX CONCURRENTLY {quoted(name)} {definition}")
        return
    found = await inspect_index(connection, table, column)
    if found.name == name and (found.m, found.ef_construction) != (parameters.m, parameters.ef_construction):
        await changes.drop_index(name)
    await changes.build_index(name, definition)


def _replacement(table: MemoryTable) -> str:
    """Return the name of a new index while the old one still serves recalls."""
    return index_name(table.name, REBUILT)


async def _has_replacement(changes: TableChanges, parameters: IndexParameters) -> bool:
    """Return whether a complete new index of these parameters is over the same column as our present index."""
    table = changes.table
    over = "split_part(split_part(pg_get_indexdef({}), ' USING ', 2), ' WITH ', 1)"
    ours = over.format(f"to_regclass({literal(table.in_schema(hnsw_name(table)))})")
    options = literal(f"{{m={parameters.m},ef_construction={parameters.ef_construction}}}")
    found = await changes.in_catalog(
        f"SELECT i.indisvalid AND i.indisready AND i.indpred IS NULL AND c.reloptions @> {options}::text[] "
        f"AND {over.format('i.indexrelid')} = {ours} FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        f"WHERE i.indexrelid = to_regclass({literal(table.in_schema(_replacement(table)))})"
    )
    return found is True


async def _exchange(changes: TableChanges) -> None:
    """Drop the old index and give its name to the new one, in one transaction, once no other session uses the table.

    Raises:
        LockNotAvailable: other sessions used the table for all of `changes.lock_seconds`. The new index stays.
    """
    table = changes.table
    ours, replacement = hnsw_name(table), _replacement(table)
    parts = (
        f"ALTER INDEX IF EXISTS {quoted(one.schema)}.{quoted(one.index_name(table.name, replacement))} "
        f"RENAME TO {quoted(one.index_name(table.name, ours))}"
        for one in table.partitions
    )
    await changes.run_together(
        [
            *wait_for_maintenance(table),
            f"DROP INDEX {table.in_schema(ours)}",
            f"ALTER INDEX {table.in_schema(replacement)} RENAME TO {quoted(ours)}",
            *parts,
        ]
    )


async def _drop_replacement(changes: TableChanges) -> None:
    """Drop the new index that an interrupted rebuild left beside the index that serves recalls."""
    replacement = _replacement(changes.table)
    if changes.table.is_partitioned:
        await changes.drop_index(replacement)
        return
    await _run(changes.connection, f"DROP INDEX CONCURRENTLY IF EXISTS {changes.table.in_schema(replacement)}")


async def _run(connection: Connection, statement: str) -> None:
    with translated("building the vector index"):
        await connection.execute(statement)
