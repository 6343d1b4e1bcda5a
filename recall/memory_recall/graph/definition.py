"""The tables and the rules of the concept graph, by definition, and how they are compared with the catalog.

A concept is a number, made from its owner and its name with the table's secret key, so that no table of the graph holds
a word of any memory. A link says that a memory has a concept. The rules: whatever changes the concepts of a memory, or
makes it sensitive or deleted, removes its links in the same transaction and appends its id to a queue, and nobody can
insert links of a memory that is sensitive, deleted or gone, not even replication. Only `memory_recall.graph.filling`
inserts links. A transaction that is isolated by a snapshot (REPEATABLE READ, SERIALIZABLE) cannot remove links that
were inserted after the snapshot: the worker that empties the queue does, and so does the sweep, for which no queue is
needed (`memory_recall.graph.sweeping`).

The graph is enabled and disabled at any time, so its tables are no revision of the schema. The table `memory_graph` has
its only row while the rules are in place and all memories have been queued. Without this row nothing is filled, and no
recall reads the graph.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.owners import owner_text
from memory_recall.schema.ddl import literal
from memory_recall.schema.definitions import Function, Trigger, fires, is_there, look_up, trigger_function
from memory_recall.schema.graph_relations import (
    ADDED,
    CHANGED,
    CHANGES,
    CONCEPT,
    CONCEPTS,
    EMPTIED,
    GRAPH,
    GRAPH_TABLES,
    MEMORY_TRIGGERS,
    text_columns,
)
from memory_recall.schema.rules.expected import TEXT_HASH
from memory_recall.schema.table import NOTIFY_CHANNEL, MemoryTable, quoted

EXTRACTION = 1  # raised with every change of the concepts that a text has; then all memories are read again
BY_CONCEPT = "memory_concepts_by_concept"


def owner(table: MemoryTable, row: str) -> str:
    """Return an SQL expression for the owner of a row's concepts, which is '' where the row names no user."""
    return f"coalesce({owner_text(table, row)}, '')"


def tables(table: MemoryTable) -> list[str]:
    """Return statements that create the graph's tables and index, each only if it is missing.

    Each table has a primary key, without which Postgres refuses to update the tables of a publication.
    """
    concepts, key = table.own(CONCEPTS), table.key.stored
    return [
        (
            f"CREATE TABLE IF NOT EXISTS {table.own(GRAPH)} (extraction integer PRIMARY KEY, "
            "enabled_at timestamptz NOT NULL DEFAULT now(), filled_at timestamptz)"
        ),
        f"CREATE TABLE IF NOT EXISTS {concepts} (memory_id {key}, concept bigint, PRIMARY KEY (memory_id, concept))",
        f"CREATE INDEX IF NOT EXISTS {quoted(BY_CONCEPT + table.suffix)} ON {concepts} (concept, memory_id)",
        (
            f"CREATE TABLE IF NOT EXISTS {table.own(CHANGES)} ("
            f"step bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, memory_id {key} NOT NULL)"
        ),
    ]


def functions(table: MemoryTable) -> list[Function]:
    """Return the definitions of the graph's functions: one computes a concept's number, the triggers run the others."""
    return [_concept(table), _changed(table), _emptied(table), _added(table)]


def _concept(table: MemoryTable) -> Function:
    """Return the function that returns a concept's number: the first 64 bits of the keyed hash of owner and name.

    A name holds no line break, so the text that is hashed tells where the owner ends.
    """
    join, hashed = "OPERATOR(pg_catalog.||)", table.own(TEXT_HASH)
    text = f"owner {join} E'\\n' {join} name"
    body = f"SELECT ('x' {join} pg_catalog.left({hashed}({text}), 16))::pg_catalog.bit(64)::pg_catalog.int8"
    return Function(CONCEPT, "owner text, name text", "bigint", "sql", "IMMUTABLE", body)


def _changed(table: MemoryTable) -> Function:
    """Return the trigger function that removes the links of a row and appends its id to the queue.

    The id is appended although the links are gone, because a transaction with an older snapshot does not see links that
    were inserted after it. The worker removes these. Nothing is done without the tables, because an edit must not fail.
    """
    concepts, changes = table.own(CONCEPTS), table.own(CHANGES)
    old, new = table.row("OLD").id, table.row("NEW").id
    body = f"""
        BEGIN
            IF TG_OP <> 'INSERT' AND to_regclass({literal(concepts)}) IS NOT NULL THEN
                DELETE FROM {concepts} WHERE memory_id = {old};
            END IF;
            IF to_regclass({literal(changes)}) IS NOT NULL THEN
                INSERT INTO {changes} (memory_id)
                SELECT DISTINCT id FROM unnest(ARRAY[{old}, {new}]::{table.key.stored}[]) AS id WHERE id IS NOT NULL;
                PERFORM pg_catalog.pg_notify('{NOTIFY_CHANNEL}', TG_TABLE_NAME);
            END IF;
            RETURN NULL;
        END
        """
    return trigger_function(CHANGED, body, security_definer=True)


def _emptied(table: MemoryTable) -> Function:
    """Return the trigger function that removes all links when the table of memories is truncated."""
    concepts = table.own(CONCEPTS)
    body = f"""
        BEGIN
            IF to_regclass({literal(concepts)}) IS NOT NULL THEN
                TRUNCATE {concepts};
            END IF;
            RETURN NULL;
        END
        """
    return trigger_function(EMPTIED, body, security_definer=True)


def _added(table: MemoryTable) -> Function:
    """Return the trigger function that refuses a link of a row that is sensitive, deleted or gone.

    It locks the row, so that it does not become sensitive in a transaction that does not see the link. It is called for
    each link, because replication fires no triggers for statements. A link that is replicated is left out instead of
    refused, since an error would stop the replication of everything else.
    """
    body = f"""
        BEGIN
            PERFORM FROM {table.qualified} m
              WHERE {table.row("m").id} = NEW.memory_id AND {table.shareable("m")} FOR SHARE;
            IF FOUND THEN
                RETURN NEW;
            END IF;
            IF current_setting('session_replication_role') = 'replica' THEN
                RETURN NULL;
            END IF;
            RAISE EXCEPTION 'A memory that is sensitive, deleted or gone has no concepts.'
                USING ERRCODE = 'check_violation';
        END
        """
    return trigger_function(ADDED, body, security_definer=True)


def memory_triggers(table: MemoryTable) -> list[Trigger]:
    """Return the triggers on the table of memories.

    The one for updates is called only where an update changes a row's concepts or whether it may have any: writing a
    vector back, by far the most frequent update, does neither.
    """
    inserted, updated, deleted, truncated = MEMORY_TRIGGERS
    owned = ["user_id"] if "user_id" in table.columns else []
    new = table.row("new")
    compared = [one for name in ("id", *text_columns(table), *owned) for one in new.differs(name, "old")]
    differs = " OR ".join([*compared, f"({table.shareable('new')} IS DISTINCT FROM {table.shareable('old')})"])
    return [
        Trigger(inserted, "AFTER INSERT", f"FOR EACH ROW WHEN ({table.shareable('new')})", CHANGED),
        Trigger(updated, "AFTER UPDATE", f"FOR EACH ROW WHEN (({differs}))", CHANGED),
        Trigger(deleted, "AFTER DELETE", "FOR EACH ROW", CHANGED),
        Trigger(truncated, "AFTER TRUNCATE", "FOR EACH STATEMENT", EMPTIED),
    ]


LINK_TRIGGER = Trigger("zz_memory_graph_added", "BEFORE INSERT OR UPDATE", "FOR EACH ROW", ADDED)

_RELATIONS = """
SELECT (SELECT coalesce(json_agg(name), '[]')::text FROM jsonb_array_elements_text($1::text::jsonb) name
         WHERE to_regclass(name) IS NULL) AS missing,
       EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($2)::oid AND indrelid = to_regclass($3)::oid
                  AND indisvalid AND indisready) AS indexed
"""


async def differences(connection: AnyConnection, table: MemoryTable, *, queue: bool = True) -> str:
    """Return the names of the tables and rules that are missing or differ from their definitions, or "" if none do.

    With `queue` False, the table of the queue may be missing, as in a graph whose tables are only kept.
    """
    own = {table.own(name): name for name in GRAPH_TABLES if queue or name != CHANGES}
    names = [one.name + table.suffix for one in functions(table)]
    with translated("comparing the rules of the concept graph"):
        row = await connection.fetchrow(_RELATIONS, json.dumps(list(own)), table.own(BY_CONCEPT), table.own(CONCEPTS))
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    memories = await look_up(connection, table.schema, table.qualified, names)
    links = await look_up(connection, table.schema, table.own(CONCEPTS), ())
    found = [f"table {own[name]}" for name in json.loads(row["missing"])]
    found += [] if row["indexed"] else [f"index {BY_CONCEPT}"]
    found += [f"function {one.name}" for one in functions(table) if not is_there(one, table, memories["functions"])]
    found += [f"trigger {one.name}" for one in memory_triggers(table) if not fires(one, table, memories["triggers"])]
    found += [] if fires(LINK_TRIGGER, table, links["triggers"]) else [f"trigger {LINK_TRIGGER.name}"]
    return ", ".join(found)
