"""The statements of a swap that change the table: add the standby column, exchange it with the active one, drop it.

Each function returns statements for one transaction that locks the table first. The statements change only the catalog
and the recorded failures, so the lock lasts milliseconds however large the table is. A column and its triggers are
created in the same transaction, so that no row is written without the triggers.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.hnsw.definition import hnsw_name
from memory_recall.schema.ddl import literal
from memory_recall.schema.rules.expected import (
    STANDBY_TRIGGERS,
    column_model,
    constraint,
    direction_trigger,
    standby_guard,
    update_trigger,
)
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, quoted

_TEMPORARY_NAME = "memory_index_flipping"


def lock(table: MemoryTable) -> str:
    """Return the statement that locks the table against all other sessions."""
    return f"LOCK TABLE {table.qualified} IN ACCESS EXCLUSIVE MODE"


def add_standby(table: MemoryTable, dimensions: int) -> list[str]:
    """Return statements that add the standby column with its constraint and triggers.

    The column gets the same privileges as the active column.
    """
    return [
        lock(table),
        f"ALTER TABLE {table.qualified} ADD COLUMN {table.vector_name(STANDBY)} {table.vector_type(dimensions)}",
        _grant_standby(table),
        f"ALTER TABLE {table.qualified} ADD CONSTRAINT {STANDBY.constraint} {constraint(table, STANDBY)} NOT VALID",
        *standby_guard(table).create(table),
        *(statement for trigger in STANDBY_TRIGGERS for statement in trigger.create(table)),
    ]


def _grant_standby(table: MemoryTable) -> str:
    """Return a statement that grants on the standby column the privileges that exist on the active column.

    Both need the same privileges, because the flip renames the columns, and renaming does not change privileges.
    """
    active = literal(table.vector_name(ACTIVE))
    grant = f"GRANT %s ({table.vector_name(STANDBY)}) ON {table.qualified.replace('%', '%%')} TO "
    body = f"""
        DECLARE found record;
        BEGIN
            FOR found IN
                SELECT privilege_type AS privilege, grantee, pg_get_userbyid(grantee) AS role
                  FROM pg_attribute, aclexplode(attacl)
                 WHERE attrelid = {literal(table.qualified)}::regclass::oid AND attname = {active}
            LOOP
                IF found.grantee = 0 THEN
                    EXECUTE pg_catalog.format({literal(f"{grant}PUBLIC")}, found.privilege);
                ELSE
                    EXECUTE pg_catalog.format({literal(f"{grant}%I")}, found.privilege, found.role);
                END IF;
            END LOOP;
        END"""
    return f"DO LANGUAGE plpgsql {literal(body)}"


def drop_standby(table: MemoryTable) -> list[str]:
    """Return statements that drop the standby column with its constraint, triggers, indexes and recorded failures."""
    return [
        lock(table),
        *(f"DROP TRIGGER IF EXISTS {trigger.name} ON {table.qualified}" for trigger in STANDBY_TRIGGERS),
        f"ALTER TABLE {table.qualified} DROP CONSTRAINT IF EXISTS {STANDBY.constraint}",
        f"ALTER TABLE {table.qualified} DROP COLUMN IF EXISTS {table.vector_name(STANDBY)}",
        f"DELETE FROM {table.own(STANDBY.failures)}",
    ]


def exchange(table: MemoryTable, model_id: int) -> list[str]:
    """Return statements that exchange the names of the active and the standby column.

    The names of their constraints and indexes are exchanged, too. The recorded failures of the standby column replace
    those of the active one.
    """
    active, standby = table.own(ACTIVE.failures), table.own(STANDBY.failures)
    columns = "id, text_hash, attempts, error_class, next_attempt, updated_at"
    return [
        *_exchange_names(f"ALTER TABLE {table.qualified} RENAME COLUMN", *map(table.vector_name, (ACTIVE, STANDBY))),
        *_exchange_names(f"ALTER TABLE {table.qualified} RENAME CONSTRAINT", ACTIVE.constraint, STANDBY.constraint),
        *_index_renames(table, hnsw_name(table, ACTIVE), hnsw_name(table, STANDBY)),
        *_index_renames(table, ACTIVE.pending_index(table.name), STANDBY.pending_index(table.name)),
        *update_trigger(table).create(table),
        *direction_trigger(table).create(table),
        f"DELETE FROM {active}",
        f"INSERT INTO {active} ({columns}) SELECT {columns} FROM {standby}",
        f"DELETE FROM {standby}",
        *column_model(model_id).create(table),
    ]


def _exchange_names(command: str, one: str, other: str) -> list[str]:
    steps = ((one, _TEMPORARY_NAME), (other, one), (_TEMPORARY_NAME, other))
    return [f"{command} {before} TO {after}" for before, after in steps]


def _index_renames(table: MemoryTable, one: str, other: str) -> list[str]:
    """Return statements that exchange the names of two indexes, and of their parts in partitions."""
    # The active column's vector index may be the API's own; it keeps its name.
    places = [(quoted(table.schema), one, other)]
    places += [
        (quoted(part.schema), part.index_name(table.name, one), part.index_name(table.name, other))
        for part in table.partitions
    ]
    return [
        f"ALTER INDEX IF EXISTS {schema}.{quoted(before)} RENAME TO {quoted(after)}"
        for schema, first, second in places
        for before, after in ((first, _TEMPORARY_NAME), (second, first), (_TEMPORARY_NAME, second))
    ]
