"""Enables the concept graph of a table of memories, pauses it, and disables it.

Whoever calls `enable`, `pause` or `disable` holds the lock for changing the schema (`locked_session`). Each may be
called again at any time.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Callable

from memory_recall.errors import SchemaUnsupported
from memory_recall.graph.definition import (
    EXTRACTION,
    LINK_TRIGGER,
    differences,
    functions,
    memory_triggers,
    tables,
)
from memory_recall.graph.grants import grant, revoke
from memory_recall.graph.state import graph_state
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.graph_relations import CHANGES, CONCEPTS, GRAPH, drop_graph
from memory_recall.schema.requirements.taken_names import read_taken_names, require_own_names
from memory_recall.schema.table import NOTIFY_CHANNEL, MemoryTable, describe
from memory_recall.schema.table_locks import Work, locked_session

_BATCH = 20_000  # memories that are queued in one statement


async def enable(
    connection: Connection,
    table: MemoryTable,
    *,
    lock_seconds: float = 600,
    queued: Callable[[int], None] | None = None,
) -> bool:
    """Create what is missing of the graph, and queue all memories if anything was; a worker fills the graph then.

    If a rule differs, links may have been left that it would have removed, so the graph is emptied and filled again. So
    it is if the extraction of concepts has changed. Return whether anything was changed. `queued` is called with the
    number of memories that have been queued so far.

    Raises:
        SchemaUnsupported: the table is partitioned. If somebody truncates or detaches a partition, no rule of the
            graph removes the links of its memories. Or something of others has a name of ours.
        LockNotAvailable: a table stayed locked by other sessions for `lock_seconds`.
    """
    if table.is_partitioned:
        raise SchemaUnsupported(
            f"Table {table.schema}.{table.name} is partitioned; there is no concept graph of a partitioned table.",
            "Keep the memories in an ordinary table to have one.",
        )
    await require_own_names(connection, table)
    changes = TableChanges(connection, table, lock_seconds)
    await changes.limit_waiting()
    graph, concepts, queue = (table.own(name) for name in (GRAPH, CONCEPTS, CHANGES))
    if (
        not await differences(connection, table)
        and await changes.value(f"SELECT extraction FROM {graph}") == EXTRACTION
    ):
        return False
    await changes.run_together([*tables(table), f"DELETE FROM {graph}", f"TRUNCATE {queue}"])
    await changes.run_together([*_rules(table), *grant(table), f"TRUNCATE {concepts}"])
    await _queue_all(connection, table, queued)
    await changes.run(f"INSERT INTO {graph} (extraction) VALUES ({EXTRACTION})")
    await changes.value(f"SELECT pg_notify({literal(NOTIFY_CHANNEL)}, {literal(table.name)})")
    return True


def _rules(table: MemoryTable) -> list[str]:
    """Return statements that create the functions and triggers, each in place of what has its name."""
    rules = [statement for one in functions(table) for statement in one.create(table)]
    for trigger in memory_triggers(table):
        rules += trigger.create(table)
    return [*rules, *LINK_TRIGGER.create(table, table.own(CONCEPTS))]


async def restore_graph(source: DsnSource, name: str, *, lock_seconds: float = 600) -> None:
    """Enable the graph of the table `name` again where it is enabled, so that nothing of it is missing or outdated.

    Raises:
        LockNotAvailable: another migration, or another session that locks a table, has gone on for `lock_seconds`.
    """
    async with locked_session(source, name, lock_seconds, Work.CHANGE) as connection:
        table = await describe(connection, name)
        if (await graph_state(connection, table)).enabled:
            await enable(connection, table, lock_seconds=lock_seconds)


async def _queue_all(connection: Connection, table: MemoryTable, queued: Callable[[int], None] | None) -> None:
    """Append the ids of all memories that are neither sensitive nor deleted to the queue, in batches."""
    row_id, stored = table.row("m").id, table.key.stored
    # The last id is that of the memories' own order, which may be another than that of our table.
    statement = (
        f"WITH chosen AS MATERIALIZED (SELECT {row_id} AS id FROM {table.qualified} m "
        f"WHERE ($1::{stored} IS NULL OR {row_id} > $1) AND {table.shareable('m')} ORDER BY {row_id} LIMIT {_BATCH}), "
        f"added AS (INSERT INTO {table.own(CHANGES)} (memory_id) SELECT id FROM chosen ORDER BY id) "
        f"SELECT (SELECT {table.key.shown('c.id')} FROM chosen c ORDER BY c.id DESC LIMIT 1) AS last, "
        "count(*) AS rows FROM chosen"
    )
    last, total = None, 0
    while True:
        with translated("queueing memories for the concept graph"):
            row = await connection.fetchrow(statement, last)
        assert row is not None  # noqa: S101  (an aggregate yields one row)
        total += row["rows"]
        if queued is not None:
            queued(total)
        if row["rows"] < _BATCH:
            return
        last = row["last"]


async def pause(connection: Connection, table: MemoryTable, *, lock_seconds: float = 600) -> None:
    """End the filling of the graph and its use by recalls, and keep its tables.

    The rules that remove links stay, so that no link outlives its memory; if one is missing or differs, it is restored
    and the links are dropped. Links of memories that are in the queue may be those of a former text, and are dropped
    with the queue. `enable` fills the graph anew. What is left of a graph without its tables is dropped.

    Raises:
        SchemaUnsupported: something of others has a name of ours.
        LockNotAvailable: a table stayed locked by other sessions for `lock_seconds`.
    """
    await require_own_names(connection, table)
    changes = TableChanges(connection, table, lock_seconds)
    await changes.limit_waiting()
    graph, concepts = table.own(GRAPH), table.own(CONCEPTS)
    there = f"SELECT to_regclass({literal(graph)}) IS NOT NULL AND to_regclass({literal(concepts)}) IS NOT NULL"
    if await changes.value(there) is not True:
        await disable(connection, table, lock_seconds=lock_seconds)
        return
    if await differences(connection, table, queue=False):
        await changes.run_together([*tables(table), *_rules(table), f"TRUNCATE {concepts}"])
    await changes.run_together([*revoke(table), f"DELETE FROM {graph}", _drop_queue(table)])


def _drop_queue(table: MemoryTable) -> str:
    """Return a statement that drops the queue, if there is one, and the links of the memories that it names."""
    queue, concepts = table.own(CHANGES), table.own(CONCEPTS)
    body = f"""
        BEGIN
            IF to_regclass({literal(queue)}) IS NOT NULL THEN
                LOCK TABLE {queue} IN ACCESS EXCLUSIVE MODE;
                DELETE FROM {concepts} WHERE memory_id IN (SELECT memory_id FROM {queue});
                DROP TABLE {queue};
            END IF;
        END"""
    return f"DO LANGUAGE plpgsql {literal(body)}"


async def disable(connection: Connection, table: MemoryTable, *, lock_seconds: float = 600) -> None:
    """Drop the graph's tables and rules; nothing of it is left.

    Raises:
        LockNotAvailable: a table stayed locked by other sessions for `lock_seconds`.
    """
    changes = TableChanges(connection, table, lock_seconds)
    await changes.limit_waiting()
    taken = await read_taken_names(connection, table)
    for statement in (*revoke(table), *drop_graph(table, others=taken.tables)):
        await changes.run(statement)
