"""Restores the rules of a table, clears vectors that it must not have, and adopts partitions."""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.definitions import ADOPTED, Function
from memory_recall.schema.graph_relations import forget_graph
from memory_recall.schema.rules.differences import Differences
from memory_recall.schema.rules.expected import (
    DIRECTION_TRIGGER,
    TEXT_HASH,
    constraint,
    has_no_direction,
    partial_indexes,
    triggers,
    vector_columns,
)
from memory_recall.schema.supersessions import end_marks, void
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, VectorColumn

_BATCH = 2000  # rows that lose their vector in one statement


async def adopt(changes: TableChanges, partition: str, *, discard: bool) -> bool:
    """Adopt a new partition, a full name quoted for SQL, after discarding any vectors that it has.

    Return False, and change nothing, if it has vectors and `discard` is False.
    """
    for column in vector_columns(changes.table):
        some = f"SELECT EXISTS (SELECT FROM {partition} WHERE {changes.table.vector_name(column)} IS NOT NULL)"
        if await changes.value(some) is True:
            if not discard:
                return False
            await _clear(changes, partition, column)
    await mark_adopted(changes, partition)
    return True


async def _clear(changes: TableChanges, relation: str, column: VectorColumn, condition: str = "true") -> None:
    """Clear the vectors of a relation's rows that satisfy an SQL condition, some rows at a time."""
    key, name = changes.table.row().id, changes.table.vector_name(column)
    some = f"{name} IS NOT NULL AND {condition}"
    chosen = f"SELECT {key} FROM {relation} WHERE {some} ORDER BY {key} LIMIT {_BATCH}"
    await changes.repeat_until_done(f"UPDATE {relation} SET {name} = NULL WHERE {key} IN ({chosen})")


async def drop_directionless(changes: TableChanges, relation: str) -> None:
    """Drop the vectors of length zero that a table or a partition, a full name quoted for SQL, has."""
    for column in vector_columns(changes.table):
        await _clear(changes, relation, column, has_no_direction(changes.table, changes.table.vector_name(column)))


async def mark_adopted(changes: TableChanges, partition: str) -> None:
    """Record that a partition and the vectors that it has belong to the table of memories."""
    trigger = triggers(changes.table)[0].name
    await changes.run(f"COMMENT ON TRIGGER {trigger} ON {partition} IS {literal(ADOPTED)}")


async def restore(changes: TableChanges, found: Differences) -> None:
    """Restore the rules that are missing or differ, and clear the vectors of rows that may not have one.

    If vectors are to be discarded, all are cleared after the rules hold again. Workers store none until then. Every
    vector is read only if one of length zero could have been stored.
    """
    table = changes.table
    for function in found.functions:
        await changes.run_together(_replace(table, function))
    for trigger in found.triggers:
        await changes.run_together(trigger.create(table))
    for column in found.columns:
        await changes.run(
            f"ALTER TABLE {table.qualified} DROP CONSTRAINT IF EXISTS {column.constraint}, "
            f"ADD CONSTRAINT {column.constraint} {constraint(table, column)} NOT VALID"
        )
    for column in vector_columns(table):
        if found.discarding:
            await _clear(changes, table.qualified, column)
        await _clear(changes, table.qualified, column, f"NOT {table.shareable()}")
        await changes.run(f"ALTER TABLE {table.qualified} VALIDATE CONSTRAINT {column.constraint}")
    if any(trigger.name == DIRECTION_TRIGGER for trigger in found.triggers):
        await drop_directionless(changes, table.qualified)
    for name in found.indexes:
        over, rows = partial_indexes(table)[name]
        await changes.drop_index(name)
        await changes.build_index(name, f"ON {table.qualified} {over} WHERE {rows}")
    await changes.run(
        f"UPDATE {table.own('memory_index_state')} SET table_name = {literal(table.name)}, "
        f"table_oid = {literal(table.qualified)}::regclass, discarding = false, updated_at = now()"
    )


def _replace(table: MemoryTable, function: Function) -> list[str]:
    """Return the statements that create or replace a function.

    If the function is the hash of texts, a recorded failure whose hash does not fit is deleted, too, and a mark of
    `memory curate` whose hashes do not fit ends. The concept graph is emptied, since the numbers of its concepts come
    from this function.
    """
    if function.name != TEXT_HASH:
        return function.create(table)
    memory = table.row("m")
    keyed = function.body.removeprefix("SELECT ").replace("COALESCE(content,", f"COALESCE({memory.content},")
    forget = (
        f"DELETE FROM {entry} f WHERE NOT EXISTS (SELECT FROM {table.qualified} m "
        f"WHERE {memory.id} = f.id AND f.text_hash = {keyed})"
        for entry in (table.own(ACTIVE.failures), table.own(STANDBY.failures))
    )
    ended = f"BEGIN {end_marks(table, void(table, 's', keyed))} END"
    marks = f"DO LANGUAGE plpgsql {literal(ended)}"
    return [*forget, marks, forget_graph(table), *function.create(table)]
