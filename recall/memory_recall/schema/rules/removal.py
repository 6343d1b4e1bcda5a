"""Removes what the migrations have added to a table, by what is there: also after a first migration that failed.

Memories stay, and so does everything that existed before the migrations. Nothing is done for a table that no migration
has touched, since our tables of plain names may then belong to another table of its schema.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN
from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.graph_relations import drop_graph
from memory_recall.schema.names import index_name
from memory_recall.schema.requirements.dependents import require_no_dependents
from memory_recall.schema.requirements.taken_names import TakenNames, index_parts, read_taken_names
from memory_recall.schema.revisions import version_table
from memory_recall.schema.rules.expected import (
    FUNCTIONS,
    OWN_TABLES,
    PRESENT,
    STANDBY_TRIGGERS,
    TRUNCATE_TRIGGER,
    partial_indexes,
    triggers,
)
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, quoted

_STATISTICS_TARGET = 300  # of revision 0001


async def remove_additions(changes: TableChanges) -> None:
    """Drop our triggers, columns, constraints, indexes, functions and tables, and the versions last.

    A run that was interrupted is repeated. The column `embedding` stays if it was there before the migrations, or if
    no record tells that it was not. What others have made under a name of ours stays.

    Raises:
        LockNotAvailable: other sessions used the table for longer than `changes.lock_seconds`.
        SchemaUnsupported: something of others depends on a column that would be dropped; nothing is changed.
    """
    await changes.limit_waiting()
    table = changes.table
    if not await _was_migrated(changes):
        return
    taken = await read_taken_names(changes.connection, table)
    if table.exists:
        columns = await _added_columns(changes, taken)
        await require_no_dependents(changes.connection, table, columns)
        await _remove_from_memories(changes, taken, columns)
    for statement in drop_graph(table, others=taken.tables) if table.exists else ():
        await changes.run(statement)
    for name in FUNCTIONS:
        await changes.run(f"DROP FUNCTION IF EXISTS {table.own(name)}")
    for name in OWN_TABLES:
        if table.own(name) not in taken.tables:
            await changes.run(f"DROP TABLE IF EXISTS {table.own(name)}")
    await changes.run(f"DROP TABLE IF EXISTS {table.in_schema(version_table(table))}")


async def _added_columns(changes: TableChanges, taken: TakenNames) -> list[str]:
    """Return the names of the columns that are dropped, of which some may be gone."""
    table = changes.table
    standby = [] if taken.standby_column else [table.vector_name(STANDBY)]
    words = [OWN_SEARCH_COLUMN] if table.names.has_own_search_column else []
    active = [] if await _adopted(changes) else [table.vector_name(ACTIVE)]
    return [*standby, *words, *active]


async def _remove_from_memories(changes: TableChanges, taken: TakenNames, columns: list[str]) -> None:
    """Remove our part of the table: the indexes, whose removal may take long, and then everything else.

    The rules hold until then and go in one transaction. Without the triggers, the constraint would refuse to mark a row
    with a vector as deleted or sensitive; without the constraint alone, nothing would prove what the triggers do.
    """
    table = changes.table
    for name in (*partial_indexes(table), *(index_name(table.name, purpose) for purpose in (PRESENT, ACTIVE.purpose))):
        if taken.indexes.isdisjoint(index_parts(table, name)):
            await changes.drop_index(name)
    dropped = [f"DROP CONSTRAINT IF EXISTS {column.constraint}" for column in (STANDBY, ACTIVE)]
    dropped += [f"DROP COLUMN IF EXISTS {name}" for name in columns]
    rules = (*triggers(table), TRUNCATE_TRIGGER, *STANDBY_TRIGGERS)
    without_triggers = [f"DROP TRIGGER IF EXISTS {trigger.name} ON {table.qualified}" for trigger in rules]
    await changes.run_together([*without_triggers, f"ALTER TABLE {table.qualified} {', '.join(dropped)}"])
    if table.names.has_own_search_column:
        return
    (search,) = table.names.of("search_vector")
    target = (
        f"SELECT attstattarget FROM pg_attribute WHERE attrelid = {literal(table.qualified)}::regclass "
        f"AND attname = {literal(search.column)} AND NOT attisdropped"
    )
    if await changes.in_catalog(target) == _STATISTICS_TARGET:
        await changes.run(f"ALTER TABLE {table.qualified} ALTER COLUMN {quoted(search.column)} SET STATISTICS -1")


async def _was_migrated(changes: TableChanges) -> bool:
    table = changes.table
    return bool(await _there(changes, version_table(table)) or await _there(changes, _state(table)))


async def _adopted(changes: TableChanges) -> bool:
    """Return whether the column `embedding` was there before the migrations, or nobody knows that it was not."""
    if not await _there(changes, _state(changes.table)):
        return True
    recorded = await changes.value(f"SELECT column_adopted FROM {changes.table.own('memory_index_state')}")
    return recorded is not False


async def _there(changes: TableChanges, relation: str) -> bool:
    return await changes.value(f"SELECT to_regclass({literal(changes.table.in_schema(relation))})::text") is not None


def _state(table: MemoryTable) -> str:
    return f"memory_index_state{table.suffix}"
