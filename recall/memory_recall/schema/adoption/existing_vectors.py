"""Finds out whether it is known which model made the vectors of a table, and that they belong to the present texts.

It is not known before the first migration. Nor is it of a table that took the place of the indexed one, such as one
that was restored alone from a backup, because the model is recorded in our own tables. Nor is it of rows whose texts
may have been edited while the trigger that removes their vectors was missing or disabled.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import TableChanges
from memory_recall.schema.definitions import look_up, look_up_partitions
from memory_recall.schema.names import index_name
from memory_recall.schema.rules.expected import PRESENT, edited, update_trigger, vector_columns
from memory_recall.schema.table import ACTIVE, MemoryTable


async def has_state(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the table that records the active model exists."""
    with translated("looking for the recorded model"):
        found: bool = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table.own("memory_index_state"))
    return found


async def unknown_origin(connection: AnyConnection, table: MemoryTable, *, migrated: bool) -> str:
    """Return why it is not known of which model and text the table's vectors are, or "" if that is known.

    `migrated` says whether a migration has recorded its revision, after which it creates the triggers. A dump holds the
    recorded OID as the table's name. So after a restore of the whole database, the record names the restored table.
    """
    if not await has_state(connection, table):
        return "nobody recorded which model made them"
    with translated("comparing the table with the recorded one"):
        exchanged = await connection.fetchval(
            f"SELECT table_oid::oid <> to_regclass($1)::oid FROM {table.own('memory_index_state')}",
            table.qualified,
        )
    if exchanged:
        return (
            "it is another table than the one whose model is recorded, as after an exchange or after a restore of the "
            "table alone"
        )
    stale = await _without_trigger(connection, table) if migrated else []
    if stale:
        return f"the trigger that removes the vector of an edited text was missing or disabled in {', '.join(stale)}"
    return ""


async def _without_trigger(connection: AnyConnection, table: MemoryTable) -> list[str]:
    """Return the names of the table and of the partitions in which an edited text may have kept its vector.

    There the trigger for updates is missing, does not fire for every session, or does not compare the texts. New
    partitions, which are adopted, are left out.
    """
    guard = update_trigger(table).function + table.suffix
    found = await look_up(connection, table.schema, table.qualified, [guard])
    inside = await look_up_partitions(connection, table.schema, table.qualified)
    relations = {f"table {table.schema}.{table.name}": found["triggers"]}
    relations |= {f"partition {name}": there["triggers"] for name, there in inside.items() if not there["new"]}
    body = found["functions"].get(guard, {}).get("body", "")
    if edited(table) not in body or f"NEW.{table.vector_name(ACTIVE)} := NULL" not in body:
        return list(relations)
    return [name for name, triggers in relations.items() if not _compares_texts(table, guard, triggers)]


def _compares_texts(table: MemoryTable, guard: str, triggers: dict[str, Any]) -> bool:
    trigger = triggers.get(update_trigger(table).name)
    return (
        trigger is not None
        and trigger["enabled"] == "A"
        and trigger["function"] == guard
        and all(one in (trigger["definition"] or "") for one in table.row("new").differs("content", "old"))
    )


async def has_vectors(changes: TableChanges) -> bool:
    """Return whether a row has a vector, in either column.

    The rows of transactions that write to the table at this moment count, too, such as those that a restore copies.

    Raises:
        LockNotAvailable: other sessions wrote to the table for all of `changes.lock_seconds`.
    """
    table = changes.table
    some = " OR ".join(f"{table.vector_name(column)} IS NOT NULL" for column in vector_columns(table))
    query = f"SELECT EXISTS (SELECT FROM {table.qualified} WHERE {some})"
    if await changes.value(query) is True:
        return True
    await changes.limit_waiting()
    await changes.run_together([f"LOCK TABLE {table.qualified} IN SHARE ROW EXCLUSIVE MODE"])
    return await changes.value(query) is True


def some_vector(table: MemoryTable) -> str:
    """Return an SQL expression for whether a row has a vector in the active column."""
    return f"EXISTS (SELECT FROM {table.qualified} WHERE {table.vector_name(ACTIVE)} IS NOT NULL)"


@asynccontextmanager
async def vectors_indexed(changes: TableChanges) -> AsyncIterator[None]:
    """Keep an index of the rows with a vector for the block, so that no lock is held while the table is scanned.

    The table is scanned while the index is built, which keeps nobody waiting. There should be no vectors.
    """
    table = changes.table
    name = index_name(table.name, PRESENT)
    definition = f"ON {table.qualified} ({table.row().id}) WHERE ({table.vector_name(ACTIVE)} IS NOT NULL)"
    try:
        await changes.build_index(name, definition)
        yield
    finally:
        await changes.drop_index(name)


async def record_discard(connection: AnyConnection, table: MemoryTable) -> None:
    """Record that all vectors are to be discarded, so that a migration that is interrupted does so when run again."""
    with translated("recording that the vectors are discarded"):
        await connection.execute(f"UPDATE {table.own('memory_index_state')} SET discarding = true, updated_at = now()")
