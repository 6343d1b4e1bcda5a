"""The rules about vectors that the database itself enforces: their definitions, their comparison, and their repair.

A sensitive or deleted row has no vector, a vector belongs to the present text, and the failures of a text are forgotten
when it changes. Functions, triggers, constraints and partial indexes enforce this. They are compared by definition and
not by name, because a constraint still applies to a column that was renamed. The SQL that creates them is written as
Postgres prints it, so that the same text creates and compares them. Longer than 300 lines because definitions,
comparison and repair must change together.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
import re
import secrets
from dataclasses import dataclass
from typing import Any

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.definitions import (
    ADOPTED,
    Function,
    Trigger,
    changed,
    fires,
    is_there,
    look_up,
    look_up_partitions,
    trigger_function,
)
from memory_recall.schema.graph_relations import drop_graph, forget_graph
from memory_recall.schema.names import index_name
from memory_recall.schema.supersessions import SUPERSESSIONS, end_marks, void
from memory_recall.schema.table import (
    ACTIVE,
    GUARDED,
    GUARDED_WRITER,
    NOTIFY_CHANNEL,
    STANDBY,
    MemoryTable,
    VectorColumn,
    describe,
    quoted,
)

TEXT_HASH = "memory_index_text_hash"
COLUMN_MODEL = "memory_index_column_model"
_GUARD = "memory_index_guard"
_STANDBY_GUARD = "memory_index_guard_standby"
_FORGET = "memory_index_forget"
_FORGET_ALL = "memory_index_forget_all"
_FUNCTIONS = (TEXT_HASH, COLUMN_MODEL, _GUARD, _STANDBY_GUARD, _FORGET, _FORGET_ALL)
_BATCH = 2000  # rows that lose their vector in one statement


def column_model(model_id: int) -> Function:
    """Return the function that returns the id of the model whose vectors the column `embedding` holds.

    A transaction sees rows as of its snapshot, but the present column names. A REPEATABLE READ transaction that began
    before the flip of a swap would therefore read the old model from the state table, although `embedding` is already
    the new model's column. Postgres always uses a function's present body, so the function and the column names agree.
    """
    return Function(COLUMN_MODEL, "", "integer", "sql", "STABLE", f"SELECT {model_id}")


def _text_hash(key: str) -> Function:
    """Return the function that hashes a text with a secret key, so that nobody can guess the text from its hash.

    The construction is a short form of HMAC, with md5, because md5 is the only digest of text that Postgres calls
    immutable.
    """
    md5, join = "pg_catalog.md5", "OPERATOR(pg_catalog.||)"
    body = f"SELECT {md5}('{key}' {join} {md5}('{key}' {join} content))"
    return Function(TEXT_HASH, "content text", "text", "sql", "IMMUTABLE", body)


_KEYED = re.compile(r"SELECT pg_catalog\.md5\('([0-9a-f]{64})' ")
_KEPT = "memory_index: the key was "


def _guard(table: MemoryTable) -> Function:
    """Return the trigger function that enforces the rules of the active column.

    The function runs with the rights of its owner, because a role that edits memories may have no rights on our tables.
    It deletes a row's recorded failures when the text or the id changes or the row becomes sensitive or deleted, and
    ends the marks of `memory curate` that it has. It skips a record that a worker has locked, so that no
    edit waits for a worker. The sync worker's next sweep deletes the skipped record.
    """
    forget = " ".join(
        f"DELETE FROM {table.own(column.failures)} WHERE id IN "
        f"(SELECT id FROM {table.own(column.failures)} WHERE id = OLD.id FOR UPDATE SKIP LOCKED);"
        for column in (ACTIVE, STANDBY)
    )
    forget += f" {end_marks(table, 's.id = OLD.id OR s.superseded_by = OLD.id')}"
    differs = f"NEW.content IS DISTINCT FROM OLD.content OR NEW.id <> OLD.id OR NOT {table.shareable('NEW')}"
    body = f"""
        BEGIN
            IF TG_OP = 'UPDATE' AND NEW.content IS DISTINCT FROM OLD.content THEN
                NEW.embedding := NULL;
            END IF;
            IF NOT {table.shareable("NEW")} THEN
                NEW.embedding := NULL;
            ELSIF NEW.embedding IS NULL THEN
                PERFORM pg_catalog.pg_notify('{NOTIFY_CHANNEL}', {_named(table)});
            END IF;
            IF TG_OP = 'UPDATE' AND ({differs}) THEN
                {forget}
            END IF;
            RETURN NEW;
        END
        """
    return trigger_function(_GUARD, body, security_definer=True)


def _named(table: MemoryTable) -> str:
    """Return an SQL expression for the table's name in a trigger function, which may run on one of its partitions."""
    return literal(table.name) if table.is_partitioned else "TG_TABLE_NAME"


def _forget(table: MemoryTable) -> Function:
    """Return the trigger function that deletes the records of deleted rows, once for each statement.

    On a partitioned table it runs once for each row, because a trigger for statements does not run for a statement that
    names a partition.

    It does nothing if the tables of failures are gone, because deletes of memories must not fail. Releases whose last
    schema revision is before 0006 may remove these tables and leave this function.
    """
    gone = "OLD.id" if table.is_partitioned else "SELECT id FROM gone"
    rows = "WHERE f.id = OLD.id" if table.is_partitioned else "JOIN gone g ON g.id = f.id"
    marks = end_marks(table, f"s.id IN ({gone}) OR s.superseded_by IN ({gone})")
    body = f"BEGIN {_delete_failures(table, rows)} {marks} RETURN NULL; END"
    return trigger_function(_FORGET, body, security_definer=True)


def _forget_all(table: MemoryTable) -> Function:
    """Return the trigger function that deletes the records of all rows when the table is truncated.

    No trigger tells that one partition alone is truncated; the sync worker's next sweep deletes the records of its
    rows.
    """
    body = f"BEGIN {_delete_failures(table, '')} {end_marks(table, 'true')} RETURN NULL; END"
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
    active, standby = ACTIVE.name, STANDBY.name
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
            IF TG_OP = 'UPDATE' AND NEW.content IS DISTINCT FROM OLD.content THEN
                NEW.{standby} := NULL;
            END IF;
            IF NOT {table.shareable("NEW")} THEN
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
    differs = f"{changed(table, 'content')} OR {changed(table, 'id')}"
    condition = f"((new.{ACTIVE.name} IS NULL) OR (NOT {table.shareable('new')}) OR {differs})"
    return Trigger("zz_memory_index_update", "BEFORE UPDATE", f"FOR EACH ROW WHEN ({condition})", _GUARD)


STANDBY_TRIGGERS = (
    Trigger("zz_memory_index_standby_insert", "BEFORE INSERT", "FOR EACH ROW", _STANDBY_GUARD),
    Trigger("zz_memory_index_standby_update", "BEFORE UPDATE", "FOR EACH ROW", _STANDBY_GUARD),
)


def _triggers(table: MemoryTable) -> list[Trigger]:
    deleted = "FOR EACH ROW" if table.is_partitioned else "REFERENCING OLD TABLE AS gone FOR EACH STATEMENT"
    return [
        Trigger("zz_memory_index_insert", "BEFORE INSERT", "FOR EACH ROW", _GUARD),
        update_trigger(table),
        Trigger("zz_memory_index_delete", "AFTER DELETE", deleted, _FORGET),
        *(STANDBY_TRIGGERS if table.standby_dimensions is not None else ()),
    ]


# Postgres copies no trigger for statements to partitions.
_TRUNCATE_TRIGGER = Trigger("zz_memory_index_truncate", "AFTER TRUNCATE", "FOR EACH STATEMENT", _FORGET_ALL)


def constraint(table: MemoryTable, column: VectorColumn) -> str:
    """Return the constraint of a vector column: a sensitive or deleted row has no vector."""
    return f"CHECK ((({column.name} IS NULL) OR {table.shareable()}))"


def _indexes(table: MemoryTable) -> dict[str, str]:
    """Return the partial indexes of the active column, each with its condition."""
    return {
        ACTIVE.pending_index(table.name): table.pending(),
        index_name(table.name, f"{ACTIVE.name}_withheld"): f"(NOT {table.shareable()})",
    }


@dataclass(frozen=True)
class Differences:
    """The rules that are missing or differ from their definitions; all fields are empty if there are none.

    `partitions` names the partitions in which a trigger or a constraint is missing or differs. `new` names the
    partitions that were added since the last migration; they may have been attached with vectors of unknown origin.
    `discarding` says that a migration has begun to discard all vectors and has not ended.
    """

    functions: tuple[Function, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    columns: tuple[VectorColumn, ...] = ()
    indexes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    another_table: bool = False
    discarding: bool = False

    def __bool__(self) -> bool:
        """Whether any rule is missing or differs."""
        rules = self.functions or self.triggers or self.columns or self.indexes
        return bool(rules or self.new or self.another_table or self.discarding)

    def __str__(self) -> str:
        """Return the names of the rules that are missing or differ."""
        names = [f"function {function.name}" for function in self.functions]
        names += [f"trigger {trigger.name}" for trigger in self.triggers]
        names += [f"constraint {column.constraint}" for column in self.columns]
        names += [f"index {name}" for name in self.indexes]
        names += [f"in partition {name}" for name in self.partitions]
        names += [f"new partition {name}" for name in self.new]
        names += ["the table's OID"] if self.another_table else []
        names += ["vectors that are to be discarded"] if self.discarding else []
        return ", ".join(names)


async def has_own_tables(connection: AnyConnection, table: MemoryTable, revision: str) -> bool:
    """Return whether the embedding column and all our own tables of the schema revision `revision` exist."""
    names = ["memory_index_state", "memory_index_models", ACTIVE.failures]
    if revision >= "0004":
        names += ["memory_index_swaps", STANDBY.failures]
    if revision >= "0008":
        names.append(SUPERSESSIONS)
    with translated("looking up our own tables"):
        found: bool = await connection.fetchval(
            "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM jsonb_array_elements_text($1::jsonb) name",
            json.dumps([table.own(name) for name in names]),
        )
    return found and table.embedding_dimensions is not None


async def differences(connection: AnyConnection, table: MemoryTable) -> Differences:
    """Compare the rules of a table at the last revision with their definitions.

    While a swap has added the standby column, that column's rules are compared too; its constraint need not be
    validated yet.
    """
    names = [name + table.suffix for name in _FUNCTIONS]
    with translated("comparing the rules"):
        state = await connection.fetchrow(
            "SELECT active_model, discarding, table_oid = to_regclass($1) AS same "
            f"FROM {table.own('memory_index_state')}",
            table.qualified,
        )
    found = await look_up(connection, table.schema, table.qualified, names)
    if state is None:
        return Differences(another_table=True)
    functions = _functions(table, state["active_model"], found["functions"])
    triggers, columns = _unmet(table, found)
    triggers += [] if fires(_TRUNCATE_TRIGGER, table, found["triggers"]) else [_TRUNCATE_TRIGGER]
    inside = await look_up_partitions(connection, table.schema, table.qualified)
    partitions = []
    for name, there in inside.items():
        more_triggers, more_columns = _unmet(table, there)
        if more_triggers or more_columns:
            partitions.append(name)
        triggers += [one for one in more_triggers if one not in triggers]
        columns += [one for one in more_columns if one not in columns]
    return Differences(
        tuple(one for one in functions if not is_there(one, table, found["functions"])),
        tuple(triggers),
        tuple(columns),
        tuple(name for name, rows in _indexes(table).items() if found["indexes"].get(name) != rows),
        tuple(partitions),
        tuple(name for name, there in inside.items() if there["new"]),
        another_table=state["same"] is not True,
        discarding=state["discarding"],
    )


def _unmet(table: MemoryTable, found: dict[str, Any]) -> tuple[list[Trigger], list[VectorColumn]]:
    """Return the triggers, and the columns with the constraints, that a relation lacks or has in another form."""
    return (
        [one for one in _triggers(table) if not fires(one, table, found["triggers"])],
        [one for one in vector_columns(table) if not _holds(one, table, found["constraints"])],
    )


def _functions(table: MemoryTable, active_model: int, found: dict[str, Any]) -> list[Function]:
    key = _key(table, found) or secrets.token_hex(32)
    guards = [_guard(table), standby_guard(table), _forget(table), _forget_all(table)]
    return [_text_hash(key), column_model(active_model), *guards]


def _key(table: MemoryTable, found: dict[str, Any]) -> str | None:
    """Return the key of the function that hashes texts, or the one that was kept; None if there is neither."""
    function = found.get(TEXT_HASH + table.suffix, {"body": "", "comment": None})
    if keyed := _KEYED.match(function["body"]):
        return keyed.group(1)
    comment = function["comment"] or ""
    return comment.removeprefix(_KEPT) if comment.startswith(_KEPT) else None


async def keep_key(changes: TableChanges) -> None:
    """Keep the key of the hash of texts while the revisions, one of which creates the function without it, run again.

    Otherwise every mark of `memory curate` would end, as under another key no recorded hash fits its text. The key is
    kept in a comment of the function, which stays when the function is replaced. There anybody can read it, as in the
    function itself.
    """
    table = changes.table
    found = await look_up(changes.connection, table.schema, table.qualified, [TEXT_HASH + table.suffix])
    if key := _key(table, found["functions"]):
        await changes.run(f"COMMENT ON FUNCTION {table.own(TEXT_HASH)}(text) IS {literal(_KEPT + key)}")


def vector_columns(table: MemoryTable) -> list[VectorColumn]:
    """Return the vector columns that the table has: the active one, and during a swap the standby column."""
    return [ACTIVE] if table.standby_dimensions is None else [ACTIVE, STANDBY]


def _holds(column: VectorColumn, table: MemoryTable, found: dict[str, Any]) -> bool:
    definition = found.get(column.constraint)
    wanted = constraint(table, column)
    return definition == wanted or (column is STANDBY and definition == f"{wanted} NOT VALID")


async def describe_differences(connection: AnyConnection, table: MemoryTable) -> str:
    """Return the names of the rules that are missing or differ, or "" if there are none.

    The comparison is repeated until two results in a row are equal, because a swap may change the table meanwhile.
    """
    before = ""
    while (found := str(await differences(connection, table))) != before:
        before, table = found, await describe(connection, f"{table.schema}.{table.name}")
    return found


async def adopt(changes: TableChanges, partition: str, *, discard: bool) -> bool:
    """Adopt a new partition, a full name quoted for SQL, after discarding any vectors that it has.

    Return False, and change nothing, if it has vectors and `discard` is False.
    """
    for column in vector_columns(changes.table):
        some = f"SELECT EXISTS (SELECT FROM {partition} WHERE {column.name} IS NOT NULL)"
        if await changes.value(some) is True:
            if not discard:
                return False
            await _discard(changes, partition, column)
    await mark_adopted(changes, partition)
    return True


async def _discard(changes: TableChanges, relation: str, column: VectorColumn) -> None:
    chosen = f"SELECT id FROM {relation} WHERE {column.name} IS NOT NULL ORDER BY id LIMIT {_BATCH}"
    await changes.repeat_until_done(f"UPDATE {relation} SET {column.name} = NULL WHERE id IN ({chosen})")


async def mark_adopted(changes: TableChanges, partition: str) -> None:
    """Record that a partition and the vectors that it has belong to the table of memories."""
    trigger = _triggers(changes.table)[0].name
    await changes.run(f"COMMENT ON TRIGGER {trigger} ON {partition} IS {literal(ADOPTED)}")


async def restore(changes: TableChanges, found: Differences) -> None:
    """Restore the rules that are missing or differ, and clear the vectors of rows that may not have one.

    If vectors are to be discarded, all are cleared after the rules hold again. Workers store none until then.
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
            await _discard(changes, table.qualified, column)
        await changes.repeat_until_done(
            f"UPDATE {table.qualified} SET {column.name} = NULL WHERE id IN (SELECT id FROM {table.qualified} "
            f"WHERE {column.name} IS NOT NULL AND NOT {table.shareable()} ORDER BY id LIMIT {_BATCH})"
        )
        await changes.run(f"ALTER TABLE {table.qualified} VALIDATE CONSTRAINT {column.constraint}")
    for name in found.indexes:
        await changes.drop_index(name)
        await changes.build_index(name, f"ON {table.qualified} (id) WHERE {_indexes(table)[name]}")
    await changes.run(
        f"UPDATE {table.own('memory_index_state')} SET table_name = {literal(table.name)}, "
        f"table_oid = {literal(table.qualified)}::regclass, discarding = false, updated_at = now()"
    )


def _replace(table: MemoryTable, function: Function) -> list[str]:
    """Return the statements that create or replace a function.

    If the function is the hash of texts, the recorded failures are changed, too. A failure that has the plain md5 of
    the row's present text gets the new hash. A failure whose hash fits neither way is deleted, and a mark of `memory
    curate` whose hashes do not fit ends. The concept graph is emptied, since the numbers of its concepts come from this
    function.
    """
    if function.name != TEXT_HASH:
        return function.create(table)
    entries = [table.own(column.failures) for column in (ACTIVE, STANDBY)]
    keyed = function.body.removeprefix("SELECT ").replace("content", "m.content")
    rehash = (
        f"UPDATE {entry} f SET text_hash = {keyed} FROM {table.qualified} m "
        "WHERE m.id = f.id AND f.text_hash = pg_catalog.md5(m.content)"
        for entry in entries
    )
    forget = (
        f"DELETE FROM {entry} f WHERE NOT EXISTS (SELECT FROM {table.qualified} m "
        f"WHERE m.id = f.id AND f.text_hash = {keyed})"
        for entry in entries
    )
    ended = f"BEGIN {end_marks(table, void(table, 's', keyed))} END"
    unkept = f"COMMENT ON FUNCTION {table.own(TEXT_HASH)}(text) IS NULL"
    marks = f"DO LANGUAGE plpgsql {literal(ended)}"
    return [*rehash, *forget, marks, forget_graph(table), *function.create(table), unkept]


async def remove(changes: TableChanges) -> None:
    """Drop the triggers and functions; the revisions drop the columns and tables afterwards."""
    table = changes.table
    for statement in drop_graph(table):
        await changes.run(statement)
    for trigger in (*_triggers(table), _TRUNCATE_TRIGGER, *STANDBY_TRIGGERS):
        await changes.run(f"DROP TRIGGER IF EXISTS {trigger.name} ON {table.qualified}")
    for name in _FUNCTIONS:
        await changes.run(f"DROP FUNCTION IF EXISTS {table.own(name)}")
