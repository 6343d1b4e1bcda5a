"""Sets the fillfactor of a table: how full its pages are made, in percent, by rows that are written from then on."""

from memory_recall.postgres.connection import DsnSource
from memory_recall.schema.ddl import TableChanges
from memory_recall.schema.table import MemoryTable, describe, quoted
from memory_recall.schema.table_locks import Work, locked_session


def fillfactor_statements(table: MemoryTable, percent: int) -> list[str]:
    """Return the statements that set the fillfactor, one for each partition where the table has partitions."""
    relations = [f"{quoted(one.schema)}.{quoted(one.name)}" for one in table.partitions] or [table.qualified]
    return [f"ALTER TABLE {relation} SET (fillfactor = {percent})" for relation in relations]


async def set_fillfactor(source: DsnSource, name: str, percent: int, lock_seconds: float) -> None:
    """Set the fillfactor of a table, which keeps neither readers nor writers waiting.

    Raises:
        LockNotAvailable: another session has changed or vacuumed the table for all of `lock_seconds`.
    """
    async with locked_session(source, name, lock_seconds, Work.CHANGE) as connection:
        table = await describe(connection, name)
        changes = TableChanges(connection, table, lock_seconds)
        await changes.limit_waiting()
        for statement in fillfactor_statements(table, percent):
            await changes.run(statement)
