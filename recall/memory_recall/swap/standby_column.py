"""The statements of a swap that change the table: adding the standby column, exchanging both columns, dropping one.

Each function gives the statements of one transaction, which begins by locking the table. All of them only change the
catalog, so the lock is held for milliseconds however large the table is. Nothing slips in between a column and its
rules, because both come in one transaction.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.hnsw.definition import hnsw_name
from memory_recall.schema.rules import STANDBY_TRIGGERS, column_model, constraint, standby_guard, update_trigger
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, quoted

_ASIDE = "memory_index_flipping"


def lock(table: MemoryTable) -> str:
    """What every one of these transactions begins with."""
    return f"LOCK TABLE {table.qualified} IN ACCESS EXCLUSIVE MODE"


def add_standby(table: MemoryTable, dimensions: int) -> list[str]:
    """The second column with its rules."""
    return [
        lock(table),
        f"ALTER TABLE {table.qualified} ADD COLUMN {STANDBY.name} {table.vector_type(dimensions)}",
        f"ALTER TABLE {table.qualified} ADD CONSTRAINT {STANDBY.constraint} {constraint(table, STANDBY)} NOT VALID",
        standby_guard(table).create(table),
        *(statement for trigger in STANDBY_TRIGGERS for statement in trigger.create(table)),
    ]


def drop_standby(table: MemoryTable) -> list[str]:
    """The end of the second column, its rules, its indexes and its failures."""
    return [
        lock(table),
        *(f"DROP TRIGGER IF EXISTS {trigger.name} ON {table.qualified}" for trigger in STANDBY_TRIGGERS),
        f"ALTER TABLE {table.qualified} DROP CONSTRAINT IF EXISTS {STANDBY.constraint}",
        f"ALTER TABLE {table.qualified} DROP COLUMN IF EXISTS {STANDBY.name}",
        f"DELETE FROM {table.own(STANDBY.failures)}",
    ]


def exchange(table: MemoryTable, model_id: int) -> list[str]:
    """Both columns change names, and with them whatever is named or made after them; `model_id` becomes the active."""
    active, standby = table.own(ACTIVE.failures), table.own(STANDBY.failures)
    columns = "id, text_hash, attempts, error_class, next_attempt, updated_at"
    return [
        *_three_renames(f"ALTER TABLE {table.qualified} RENAME COLUMN", ACTIVE.name, STANDBY.name),
        *_three_renames(f"ALTER TABLE {table.qualified} RENAME CONSTRAINT", ACTIVE.constraint, STANDBY.constraint),
        *_index_renames(table, hnsw_name(table, ACTIVE.name), hnsw_name(table, STANDBY.name)),
        *_index_renames(table, ACTIVE.pending_index(table.name), STANDBY.pending_index(table.name)),
        *update_trigger(table).create(table),
        f"DELETE FROM {active}",
        f"INSERT INTO {active} ({columns}) SELECT {columns} FROM {standby}",
        f"DELETE FROM {standby}",
        column_model(model_id).create(table),
    ]


def _three_renames(command: str, one: str, other: str) -> list[str]:
    steps = ((one, _ASIDE), (other, one), (_ASIDE, other))
    return [f"{command} {before} TO {after}" for before, after in steps]


def _index_renames(table: MemoryTable, one: str, other: str) -> list[str]:
    # The active column's vector index may be the API's own, under its own name, which it keeps.
    steps = ((one, _ASIDE), (other, one), (_ASIDE, other))
    return [f"ALTER INDEX IF EXISTS {table.in_schema(before)} RENAME TO {quoted(after)}" for before, after in steps]
