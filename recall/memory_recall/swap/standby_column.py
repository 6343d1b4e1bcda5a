"""The statements of a swap that change the table: adding the standby column, exchanging both columns, dropping one.

Each function gives the statements of one transaction, which begins by locking the table. All of them only change the
catalog, so the lock is held for milliseconds however large the table is. Nothing slips in between a column and its
rules, because both come in one transaction.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.hnsw.definition import hnsw_name
from memory_recall.schema.columns import ACTIVE, GUARDED, GUARDED_WRITER, STANDBY
from memory_recall.schema.table import NOTIFY_CHANNEL, MemoryTable, quoted

STANDBY_GUARD = "memory_index_guard_standby"
COLUMN_MODEL = "memory_index_column_model"
STANDBY_TRIGGERS = ("zz_memory_index_standby_insert", "zz_memory_index_standby_update")
UPDATE_TRIGGER = "zz_memory_index_update"
_ASIDE = "memory_index_flipping"


def standby_guard(table: MemoryTable) -> str:
    """The rules while there are two columns.

    A vector that a writer sets who does not say of which model it is, such as an API that embeds by itself, might
    belong to the model of a moment ago. It is dropped in favour of the sync worker's, which compares the model.
    """
    vectors = quoted(table.vector_schema or "public")
    active, standby = ACTIVE.name, STANDBY.name
    return f"""
        CREATE OR REPLACE FUNCTION {table.own(STANDBY_GUARD)}() RETURNS trigger LANGUAGE plpgsql
        SET search_path = pg_catalog, {vectors} AS $guard$
        BEGIN
            IF current_setting('{GUARDED_WRITER}', true) IS DISTINCT FROM '{GUARDED}' THEN
                IF NEW.{active} IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.{active} IS DISTINCT FROM OLD.{active}) THEN
                    NEW.{active} := NULL;
                    PERFORM pg_notify('{NOTIFY_CHANNEL}', TG_TABLE_NAME);
                END IF;
                IF NEW.{standby} IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.{standby} IS DISTINCT FROM OLD.{standby}) THEN
                    NEW.{standby} := NULL;
                END IF;
            END IF;
            IF TG_OP = 'UPDATE' AND NEW.content IS DISTINCT FROM OLD.content THEN
                NEW.{standby} := NULL;
            END IF;
            IF NOT {table.shareable("NEW")} THEN
                NEW.{standby} := NULL;
            END IF;
            RETURN NEW;
        END
        $guard$
        """


def column_model(table: MemoryTable, model_id: int) -> str:
    """A function that says of which model the column `embedding` is.

    A table's row is seen as of a snapshot, a column's name as of now. In a transaction whose snapshot is older than the
    flip (REPEATABLE READ) the state table would name the old model beside the new column. A function's body is read as
    of now, as names are, so the two always agree.
    """
    return (
        f"CREATE OR REPLACE FUNCTION {table.own(COLUMN_MODEL)}() RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE "
        f"AS 'SELECT {model_id}'"
    )


def lock(table: MemoryTable) -> str:
    """What every one of these transactions begins with."""
    return f"LOCK TABLE {table.qualified} IN ACCESS EXCLUSIVE MODE"


def add_standby(table: MemoryTable, dimensions: int) -> list[str]:
    """The second column with its rules."""
    guard = table.own(STANDBY_GUARD)
    on_insert, on_update = STANDBY_TRIGGERS
    return [
        lock(table),
        f"ALTER TABLE {table.qualified} ADD COLUMN {STANDBY.name} {table.vector_type(dimensions)}",
        (
            f"ALTER TABLE {table.qualified} ADD CONSTRAINT {STANDBY.constraint} "
            f"CHECK ({STANDBY.name} IS NULL OR {table.shareable()}) NOT VALID"
        ),
        standby_guard(table),
        f"CREATE TRIGGER {on_insert} BEFORE INSERT ON {table.qualified} FOR EACH ROW EXECUTE FUNCTION {guard}()",
        f"CREATE TRIGGER {on_update} BEFORE UPDATE ON {table.qualified} FOR EACH ROW EXECUTE FUNCTION {guard}()",
        *(f"ALTER TABLE {table.qualified} ENABLE ALWAYS TRIGGER {trigger}" for trigger in STANDBY_TRIGGERS),
    ]


def drop_standby(table: MemoryTable) -> list[str]:
    """The end of the second column, its rules, its indexes and its failures."""
    return [
        lock(table),
        *(f"DROP TRIGGER IF EXISTS {trigger} ON {table.qualified}" for trigger in STANDBY_TRIGGERS),
        f"ALTER TABLE {table.qualified} DROP CONSTRAINT IF EXISTS {STANDBY.constraint}",
        f"ALTER TABLE {table.qualified} DROP COLUMN IF EXISTS {STANDBY.name}",
        f"DELETE FROM {table.own(STANDBY.failures)}",
    ]


def update_trigger(table: MemoryTable) -> list[str]:
    """The ordinary rules' trigger; its condition is bound to a column, not to a name, so an exchange makes it anew."""
    return [
        (
            f"CREATE OR REPLACE TRIGGER {UPDATE_TRIGGER} BEFORE UPDATE ON {table.qualified} FOR EACH ROW "
            f"WHEN (NEW.{ACTIVE.name} IS NULL OR NOT {table.shareable('NEW')} "
            "OR NEW.content IS DISTINCT FROM OLD.content) "
            f"EXECUTE FUNCTION {table.own('memory_index_guard')}()"
        ),
        f"ALTER TABLE {table.qualified} ENABLE ALWAYS TRIGGER {UPDATE_TRIGGER}",
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
        *update_trigger(table),
        f"DELETE FROM {active}",
        f"INSERT INTO {active} ({columns}) SELECT {columns} FROM {standby}",
        f"DELETE FROM {standby}",
        column_model(table, model_id),
    ]


def _three_renames(command: str, one: str, other: str) -> list[str]:
    steps = ((one, _ASIDE), (other, one), (_ASIDE, other))
    return [f"{command} {before} TO {after}" for before, after in steps]


def _index_renames(table: MemoryTable, one: str, other: str) -> list[str]:
    # The active column's vector index may be the API's own, under its own name, which it keeps.
    steps = ((one, _ASIDE), (other, one), (_ASIDE, other))
    return [f"ALTER INDEX IF EXISTS {table.own(before)} RENAME TO {quoted(after)}" for before, after in steps]
