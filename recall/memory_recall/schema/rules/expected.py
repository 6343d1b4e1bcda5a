"""The rules as they must be: the functions, triggers, constraints and partial indexes that the database needs.

The SQL that creates them is written as Postgres prints it, so that the same text creates and compares them.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import re
import secrets
from typing import Any

from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN
from memory_recall.schema.ddl import literal
from memory_recall.schema.definitions import Function, Trigger, trigger_function
from memory_recall.schema.names import index_name
from memory_recall.schema.rules.words import (
    KEEP_WORDS,
    keep_words_function,
    words_function,
    words_indexes,
    words_triggers,
)
from memory_recall.schema.supersessions import SUPERSESSIONS, end_marks
from memory_recall.schema.table import (
    ACTIVE,
    GUARDED,
    GUARDED_WRITER,
    NOTIFY_CHANNEL,
    STANDBY,
    WORDS,
    MemoryTable,
    VectorColumn,
    quoted,
)
from memory_recall.schema.truncated import TRUNCATED, forget_truncated

TEXT_HASH = "memory_index_text_hash"
COLUMN_MODEL = "memory_index_column_model"
REBUILT = f"{ACTIVE.purpose}_rebuilt"
"""What the vector index is for that is built to replace another."""
PRESENT = f"{ACTIVE.purpose}_present"
"""What an index of the rows with a vector is for, which is there while an empty column or its model is replaced."""
_KEEP_COLUMNS = "memory_index_keep_columns"
_GUARD = "memory_index_guard"
_STANDBY_GUARD = "memory_index_guard_standby"
_DIRECTION = "memory_index_direction"
_FORGET = "memory_index_forget"
_FORGET_ALL = "memory_index_forget_all"
FUNCTIONS = (
    TEXT_HASH,
    COLUMN_MODEL,
    _KEEP_COLUMNS,
    _GUARD,
    _STANDBY_GUARD,
    _DIRECTION,
    _FORGET,
    _FORGET_ALL,
    KEEP_WORDS,
    WORDS,
)
OWN_TABLES = (
    "memory_index_swaps",
    STANDBY.failures,
    ACTIVE.failures,
    TRUNCATED,
    SUPERSESSIONS,
    "memory_index_state",
    "memory_index_models",
)
"""Our own tables for a table of memories; one that refers to others stands before them."""


def column_model(model_id: int) -> Function:
    """Return the function that returns the id of the model whose vectors the active column holds.

    A transaction sees rows as of its snapshot, but the present column names. A REPEATABLE READ transaction that began
    before the flip of a swap would therefore read the old model from the state table, although the active column is
    already the new model's column. Postgres always uses a function's present body, so the function and the column names
    agree.
    """
    return Function(COLUMN_MODEL, "", "integer", "sql", "STABLE", f"SELECT {model_id}")


def _text_hash(key: str) -> Function:
    """Return the function that hashes a text with a secret key, so that nobody can guess the text from its hash.

    The construction is a short form of HMAC, with md5, because md5 is the only digest of text that Postgres calls
    immutable. A missing text has the hash of an empty one, as which workers read it.
    """
    md5, join = "pg_catalog.md5", "OPERATOR(pg_catalog.||)"
    body = f"SELECT {md5}('{key}' {join} {md5}('{key}' {join} COALESCE(content, '')))"
    return Function(TEXT_HASH, "content text", "text", "sql", "IMMUTABLE", body)


_KEYED = re.compile(r"SELECT pg_catalog\.md5\('([0-9a-f]{64})' ")


def _keep_columns(table: MemoryTable) -> Function:
    """Return the trigger function that lets a statement of our writers change no columns but our own.

    Triggers of the table's owner, such as one that sets `updated_at` at every update, have run before it. What they
    changed is undone, since a vector that is stored is no edit of the memory. A row that they made sensitive or deleted
    stays so. The statements of an owner's trigger, which run inside ours, are left alone. The standby column is looked
    up, because it exists during a swap alone.
    """
    active, standby = table.vector_name(ACTIVE), table.vector_name(STANDBY)
    own = [active, OWN_SEARCH_COLUMN] if table.names.has_own_search_column else [active]
    taken = " ".join(f"OLD.{name} := NEW.{name};" for name in own)
    body = f"""
        BEGIN
            IF pg_catalog.pg_trigger_depth() > 1 OR NOT {table.shareable("NEW")} AND {table.shareable("OLD")} THEN
                RETURN NEW;
            END IF;
            {taken}
            IF EXISTS (SELECT FROM pg_catalog.pg_attribute
                        WHERE attrelid = TG_RELID AND attname = '{standby}' AND NOT attisdropped) THEN
                OLD.{standby} := NEW.{standby};
            END IF;
            RETURN OLD;
        END
        """
    return trigger_function(_KEEP_COLUMNS, body)


def _guard(table: MemoryTable) -> Function:
    """Return the trigger function that enforces the rules of the active column.

    The function runs with the rights of its owner, because a role that edits memories may have no rights on our tables.
    When the text or the id changes or the row becomes sensitive or deleted, it deletes the row's recorded failures and
    the record that its text was truncated, and ends the marks of `memory curate` that it has. It skips a record that a
    worker has locked, so that no edit waits for a worker. The sync worker's next sweep deletes the skipped record.
    """
    new, old, vector = table.row("NEW"), table.row("OLD"), table.vector_name(ACTIVE)
    forget = " ".join(
        f"DELETE FROM {table.own(column.failures)} WHERE id IN "
        f"(SELECT id FROM {table.own(column.failures)} WHERE id = {old.id} FOR UPDATE SKIP LOCKED);"
        for column in (ACTIVE, STANDBY)
    )
    forget += f" {forget_truncated(table, f't.id = {old.id}')}"
    forget += f" {end_marks(table, f's.id = {old.id} OR s.superseded_by = {old.id}')}"
    differs = " OR ".join([edited(table), *new.differs("id", "OLD"), f"NOT {table.shareable('NEW')}"])
    body = f"""
        BEGIN
            IF TG_OP = 'UPDATE' AND ({edited(table)}) THEN
                NEW.{vector} := NULL;
            END IF;
            IF NOT {table.shareable("NEW")} THEN
                NEW.{vector} := NULL;
            ELSIF NEW.{vector} IS NULL THEN
                PERFORM pg_catalog.pg_notify('{NOTIFY_CHANNEL}', {_named(table)});
            END IF;
            IF TG_OP = 'UPDATE' AND ({differs}) THEN
                {forget}
            END IF;
            RETURN NEW;
        END
        """
    return trigger_function(_GUARD, body, security_definer=True)


def edited(table: MemoryTable) -> str:
    """Return the condition of a trigger function for a row whose text was changed."""
    return " OR ".join(table.row("NEW").differs("content", "OLD"))


def _named(table: MemoryTable) -> str:
    """Return an SQL expression for the table's name in a trigger function, which may run on one of its partitions."""
    return literal(table.name) if table.is_partitioned else "TG_TABLE_NAME"


def has_no_direction(table: MemoryTable, vector: str) -> str:
    """Return an SQL condition for a vector of length zero, which is near to nothing: every cosine with it is NaN."""
    return f"{quoted(table.vector_schema or 'public')}.l2_norm({vector}) = 0"


def _direction(table: MemoryTable) -> Function:
    """Return the trigger function that drops a vector of length zero, so that its row is pending.

    It runs with the rights of its owner, because a role that edits memories may have no rights on pgvector's schema.
    """
    vector = f"NEW.{table.vector_name(ACTIVE)}"
    body = f"""
        BEGIN
            IF {has_no_direction(table, vector)} THEN
                {vector} := NULL;
            END IF;
            RETURN NEW;
        END
        """
    return trigger_function(_DIRECTION, body, security_definer=True)


def _forget(table: MemoryTable) -> Function:
    """Return the trigger function that deletes the records of deleted rows, once for each statement.

    On a partitioned table it runs once for each row, because a trigger for statements does not run for a statement that
    names a partition.

    It does nothing if the tables of records are gone, because deletes of memories must not fail.
    """
    old = table.row("OLD").id
    gone = old if table.is_partitioned else f"SELECT {table.row().id} FROM gone"
    rows = f"WHERE f.id = {old}" if table.is_partitioned else f"JOIN gone g ON {table.row('g').id} = f.id"
    marks = end_marks(table, f"s.id IN ({gone}) OR s.superseded_by IN ({gone})")
    truncated = forget_truncated(table, f"t.id IN ({gone})")
    body = f"BEGIN {_delete_failures(table, rows)} {truncated} {marks} RETURN NULL; END"
    return trigger_function(_FORGET, body, security_definer=True)


def _forget_all(table: MemoryTable) -> Function:
    """Return the trigger function that deletes the records of all rows when the table is truncated.

    No trigger tells that one partition alone is truncated; the sync worker's next sweep deletes the records of its
    rows.
    """
    records = f"{_delete_failures(table, '')} {forget_truncated(table, 'true')} {end_marks(table, 'true')}"
    body = f"BEGIN {records} RETURN NULL; END"
    return trigger_function(_FORGET_ALL, body, security_definer=True)


def _delete_failures(table: MemoryTable, rows: str) -> str:
    """Return PL/pgSQL that deletes the recorded failures `f` of the rows: all, or those of a JOIN or WHERE clause."""
    return " ".join(
        f"IF to_regclass({literal(table.own(column.failures))}) IS NOT NULL THEN "
        f"DELETE FROM {table.own(column.failures)} WHERE id IN (SELECT f.id FROM {table.own(column.failures)} f "
        f"{rows} FOR UPDATE OF f SKIP LOCKED); END IF;"
        for column in (ACTIVE, STANDBY)
    )


def standby_guard(table: MemoryTable) -> Function:
    """Return the trigger function that enforces the rules while a swap has added a second vector column.

    A writer that does not say which model made its vector, such as a memory server that embeds memories itself, might
    use a model that was replaced a moment ago. Therefore its vector is dropped. The sync worker, which compares the
    model, embeds the row instead.

    The function runs with the rights of whoever writes, so its search path does not have the schema of pgvector, in
    which others may have the right to create functions.
    """
    active, standby = table.vector_name(ACTIVE), table.vector_name(STANDBY)
    differs = f"OPERATOR({quoted(table.vector_schema or 'public')}.<>)"
    is_new = "(TG_OP = 'INSERT' OR OLD.{0} IS NULL OR NEW.{0} " + differs + " OLD.{0})"
    body = f"""
        BEGIN
            IF current_setting('{GUARDED_WRITER}', true) IS DISTINCT FROM '{GUARDED}' THEN
                IF NEW.{active} IS NOT NULL AND {is_new.format(active)} THEN
                    NEW.{active} := NULL;
                    PERFORM pg_catalog.pg_notify('{NOTIFY_CHANNEL}', {_named(table)});
                END IF;
                IF NEW.{standby} IS NOT NULL AND {is_new.format(standby)} THEN
                    NEW.{standby} := NULL;
                END IF;
            END IF;
            IF TG_OP = 'UPDATE' AND ({edited(table)}) THEN
                NEW.{standby} := NULL;
            END IF;
            IF NOT {table.shareable("NEW")} OR {has_no_direction(table, f"NEW.{standby}")} THEN
                NEW.{standby} := NULL;
            END IF;
            RETURN NEW;
        END
        """
    return trigger_function(_STANDBY_GUARD, body)


def update_trigger(table: MemoryTable) -> Trigger:
    """Return the trigger that enforces the rules of the active column on updates.

    Its name sorts last, so that it runs after other triggers and sees their changes. Its condition is false when a
    vector is written back, by far the most frequent update, so the function is not called then. A swap, which exchanges
    the names of the two vector columns, must create the trigger again, because the condition stays with a column that
    is renamed.
    """
    new = table.row("new")
    differs = " OR ".join([*new.differs("content", "old"), *new.differs("id", "old")])
    condition = f"((new.{table.vector_name(ACTIVE)} IS NULL) OR (NOT {table.shareable('new')}) OR {differs})"
    return Trigger("zz_memory_index_update", "BEFORE UPDATE", f"FOR EACH ROW WHEN ({condition})", _GUARD)


# Its name sorts after those of the owner's triggers, and before those of ours that enforce the rules.
_KEEPING_TRIGGER = Trigger(
    "zz_memory_index_columns_update",
    "BEFORE UPDATE",
    f"FOR EACH ROW WHEN ((current_setting('{GUARDED_WRITER}'::text, true) = '{GUARDED}'::text))",
    _KEEP_COLUMNS,
)


def direction_trigger(table: MemoryTable) -> Trigger:
    """Return the trigger that drops vectors of length zero from the active column.

    Its name sorts before those of the triggers that enforce the rules, so that these see the row as pending. It is
    called where a statement sets the column, not for other edits of a row, as it reads the vector. A swap must create
    it again, as it must the trigger for updates.
    """
    vector = table.vector_name(ACTIVE)
    return Trigger(
        DIRECTION_TRIGGER,
        f"BEFORE INSERT OR UPDATE OF {vector}",
        f"FOR EACH ROW WHEN ((new.{vector} IS NOT NULL))",
        _DIRECTION,
    )


DIRECTION_TRIGGER = "zz_memory_index_direction"
STANDBY_TRIGGERS = (
    Trigger("zz_memory_index_standby_insert", "BEFORE INSERT", "FOR EACH ROW", _STANDBY_GUARD),
    Trigger("zz_memory_index_standby_update", "BEFORE UPDATE", "FOR EACH ROW", _STANDBY_GUARD),
)


def triggers(table: MemoryTable) -> list[Trigger]:
    """Return the triggers for rows, which the table and each of its partitions must have."""
    deleted = "FOR EACH ROW" if table.is_partitioned else "REFERENCING OLD TABLE AS gone FOR EACH STATEMENT"
    return [
        _KEEPING_TRIGGER,
        direction_trigger(table),
        Trigger("zz_memory_index_insert", "BEFORE INSERT", "FOR EACH ROW", _GUARD),
        update_trigger(table),
        Trigger("zz_memory_index_delete", "AFTER DELETE", deleted, _FORGET),
        *(STANDBY_TRIGGERS if table.standby_dimensions is not None else ()),
        *words_triggers(table),
    ]


# Postgres copies no trigger for statements to partitions.
TRUNCATE_TRIGGER = Trigger("zz_memory_index_truncate", "AFTER TRUNCATE", "FOR EACH STATEMENT", _FORGET_ALL)


def constraint(table: MemoryTable, column: VectorColumn) -> str:
    """Return the constraint of a vector column: a sensitive or deleted row has no vector."""
    return f"CHECK ((({table.vector_name(column)} IS NULL) OR {table.shareable()}))"


def partial_indexes(table: MemoryTable) -> dict[str, tuple[str, str]]:
    """Return the partial indexes by name: what each is over, as CREATE INDEX says it, and its condition."""
    key = f"({table.row().id})"
    return {
        ACTIVE.pending_index(table.name): (key, table.pending()),
        index_name(table.name, f"{ACTIVE.purpose}_withheld"): (key, f"(NOT {table.shareable()})"),
        **words_indexes(table),
    }


def index_columns(table: MemoryTable) -> dict[str, list[str]]:
    """Return by name each index that we build on the memories, with the columns of which it begins with one."""
    vectors = [table.vector_name(column) for column in (ACTIVE, STANDBY)]
    purposes = (ACTIVE.purpose, STANDBY.purpose, REBUILT)
    key = [source.column for source in table.names.of("id")]
    searched = index_name(table.name, OWN_SEARCH_COLUMN)
    queues = (STANDBY.pending_index(table.name), index_name(table.name, PRESENT), *partial_indexes(table))
    return {
        **{index_name(table.name, purpose): vectors for purpose in purposes},
        **{name: [OWN_SEARCH_COLUMN] if name == searched else key for name in queues},
    }


def functions(table: MemoryTable, active_model: int, found: dict[str, Any]) -> list[Function]:
    """Return the functions; the hash of texts has the key of the one in the catalog (`found`), or else a new key."""
    key = _recorded_key(table, found) or secrets.token_hex(32)
    guards = [_keep_columns(table), _guard(table), standby_guard(table), _direction(table)]
    forgetting = [_forget(table), _forget_all(table)]
    words = [words_function(table, found), keep_words_function(table)] if table.names.has_own_search_column else []
    return [_text_hash(key), column_model(active_model), *guards, *forgetting, *words]


def _recorded_key(table: MemoryTable, found: dict[str, Any]) -> str | None:
    """Return the key of the function that hashes texts, or None if there is none."""
    keyed = _KEYED.match(found.get(TEXT_HASH + table.suffix, {"body": ""})["body"])
    return keyed.group(1) if keyed else None


def vector_columns(table: MemoryTable) -> list[VectorColumn]:
    """Return the vector columns that the table has: the active one, and during a swap the standby column."""
    return [ACTIVE] if table.standby_dimensions is None else [ACTIVE, STANDBY]
