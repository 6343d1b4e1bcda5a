"""The form of a function and of a trigger of ours: the SQL that creates it, and whether the catalog has it like that.

They are compared by definition and not by name, because a function's body can be replaced, and a restored dump can
leave triggers that no longer fire for every session. The SQL is written as Postgres prints it, so that the same text
creates and compares them.
"""
# ruff: noqa: S608  (statements are put together from our own expressions; values are bound)

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memory_recall.postgres.catalog_sql import SAFE_PATH, reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable, quoted

ADOPTED = "memory_index: this partition has been adopted"
_NAME_IN_PATH = re.compile(r'"((?:[^"]|"")+)"|([^",\s]+)')


@dataclass(frozen=True)
class Function:
    """The definition of one of our functions. `search_path` is empty if the body names every object with its schema.

    PUBLIC may not execute a trigger function, which Postgres allows by default. Otherwise any role could put a trigger
    with it on a temporary table of its own, and the function would change our tables with its owner's rights. A trigger
    fires for every role: the right is needed only to create it. The owner of the table of memories has the right,
    because Postgres copies triggers to a new partition with the rights of whoever adds it.
    """

    name: str
    arguments: str
    returns: str
    language: str
    volatility: str
    body: str
    security_definer: bool = False
    search_path: tuple[str, ...] = ()

    def create(self, table: MemoryTable) -> list[str]:
        """Return statements, for one transaction, that create or replace the function and set who may execute it."""
        definer = "SECURITY DEFINER" if self.security_definer else ""
        path = f"SET search_path = {', '.join(map(quoted, self.search_path))}" if self.search_path else ""
        parallel = "PARALLEL SAFE" if self.language == "sql" else ""
        create = (
            f"CREATE OR REPLACE FUNCTION {table.own(self.name)}({self.arguments}) RETURNS {self.returns} "
            f"LANGUAGE {self.language} {self.volatility} {parallel} {definer} {path} AS {literal(self.body)}"
        )
        return [create, *(_only_for_owners(table.own(self.name), table) if self._is_trigger_function else ())]

    @property
    def _is_trigger_function(self) -> bool:
        return self.returns == "trigger"

    def matches(self, found: dict[str, Any]) -> bool:
        """Return whether the function in the catalog has exactly this definition."""
        path = _NAME_IN_PATH.findall("".join(found["settings"] or ()).removeprefix("search_path="))
        return (
            tuple(in_quotes.replace('""', '"') or plain for in_quotes, plain in path) == self.search_path
            and found["body"] == self.body
            and found["language"] == self.language
            and found["definer"] == self.security_definer
            and found["volatility"] == self.volatility[0].lower()
            and not (self._is_trigger_function and found["public"])
        )


def _only_for_owners(function: str, table: MemoryTable) -> list[str]:
    """Return statements that let only the owners of a trigger function and of the table execute the function."""
    grant = f"pg_catalog.format('GRANT EXECUTE ON FUNCTION %s() TO %s', {literal(function)}, relowner::regrole)"
    body = f"BEGIN EXECUTE (SELECT {grant} FROM pg_class WHERE oid = {literal(table.qualified)}::regclass::oid); END"
    return [f"REVOKE EXECUTE ON FUNCTION {function}() FROM PUBLIC", f"DO LANGUAGE plpgsql {literal(body)}"]


@dataclass(frozen=True)
class Trigger:
    """A trigger's definition, with parts of its SQL: `firing` is for example BEFORE INSERT, and `each` FOR EACH ROW."""

    name: str
    firing: str
    each: str
    function: str

    def create(self, table: MemoryTable, relation: str | None = None) -> list[str]:
        """Return SQL statements that create or replace the trigger and make it fire for replicated rows, too.

        The trigger is on the table of memories, or on `relation`, a full name quoted for SQL.
        """
        on = relation or table.qualified
        return [
            (
                f"CREATE OR REPLACE TRIGGER {self.name} {self.firing} ON {on} {self.each} "
                f"EXECUTE FUNCTION {table.own(self.function)}()"
            ),
            f"ALTER TABLE {on} ENABLE ALWAYS TRIGGER {self.name}",
        ]

    def matches(self, definition: str | None, enabled: str) -> bool:
        """Return whether the trigger in the catalog has this definition and fires always.

        The table's name is not compared. `definition` is None if the trigger was dropped after the statement that looks
        it up had begun: the statement still sees the trigger, but Postgres no longer knows its definition.
        """
        before, _, _ = (definition or "").rpartition(" EXECUTE FUNCTION ")
        begins = before.startswith(f"CREATE TRIGGER {self.name} {self.firing} ON ")
        return begins and before.endswith(f" {self.each}") and enabled == "A"


_CONSTRAINTS = """(SELECT coalesce(json_object_agg(conname, pg_get_constraintdef(oid)), '{{}}')::text
          FROM pg_constraint WHERE conrelid = {relation})"""
_TRIGGERS = """(SELECT coalesce(json_object_agg(tgname, json_build_object('definition', pg_get_triggerdef(t.oid),
                   'enabled', tgenabled, 'function', p.proname)), '{{}}')::text
          FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid
         WHERE tgrelid = {relation}
           AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2))"""
_FOUND = f"""
SELECT {_CONSTRAINTS.format(relation="to_regclass($1)")} AS constraints,
       {_TRIGGERS.format(relation="to_regclass($1)")} AS triggers,
       (SELECT coalesce(json_object_agg(proname, json_build_object('body', prosrc, 'language', lanname, 'definer',
                   prosecdef, 'volatility', provolatile, 'settings', proconfig, 'public', EXISTS (SELECT
                   FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a WHERE a.grantee = 0))), '{{}}')::text
          FROM pg_proc p JOIN pg_language l ON l.oid = prolang
         WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2)
           AND proname IN (SELECT jsonb_array_elements_text($3::text::jsonb))) AS functions,
       (SELECT coalesce(json_object_agg(c.relname, pg_get_expr(indpred, indrelid)), '{{}}')::text
          FROM pg_index i JOIN pg_class c ON c.oid = indexrelid
         WHERE indrelid = to_regclass($1) AND indisvalid AND indisready AND indpred IS NOT NULL) AS indexes
"""
_IN_PARTITIONS = f"""
SELECT format('%I.%I', n.nspname, c.relname) AS partition, {_CONSTRAINTS.format(relation="c.oid")} AS constraints,
       {_TRIGGERS.format(relation="c.oid")} AS triggers,
       (NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_description d ON d.objoid = t.oid
                     WHERE t.tgrelid = c.oid AND d.classoid = 'pg_trigger'::regclass AND d.description = $3))::text
           AS new
  FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE h.inhparent = (SELECT oid FROM pg_class WHERE oid = to_regclass($1) AND relkind = 'p')
 ORDER BY n.nspname, c.relname
"""


async def look_up(
    connection: AnyConnection, schema: str, relation: str, functions: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return what the catalog has: the functions of these names, and the relation's constraints, triggers and indexes.

    Each of `constraints`, `triggers`, `functions` and `indexes` holds definitions by name. `relation` is a full name
    quoted for SQL. Only triggers that call a function of the schema are read, and only partial indexes that are valid.
    """
    async with reading_catalog(connection, "comparing the rules"):
        row = await connection.fetchrow(_FOUND, relation, schema, json.dumps(list(functions)))
    assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
    return {kind: json.loads(text) for kind, text in row.items()}


async def look_up_partitions(connection: AnyConnection, schema: str, relation: str) -> dict[str, dict[str, Any]]:
    """Return the `constraints` and `triggers` of each partition, by its name; an ordinary table has no partitions.

    `new` is True for a partition none of whose triggers has the comment `ADOPTED`. When a partition is detached,
    Postgres drops its triggers and their comments, so a partition that comes back is new again.
    """
    async with reading_catalog(connection, "comparing the rules of partitions"):
        rows = await connection.fetch(_IN_PARTITIONS, relation, schema, ADOPTED)
    kinds = ("constraints", "triggers", "new")
    return {row["partition"]: {kind: json.loads(row[kind]) for kind in kinds} for row in rows}


def in_adopted_partition(table: MemoryTable, row: str) -> str:
    """Return an SQL condition for whether a row is in a partition that is not new; true in an ordinary table."""
    if not table.is_partitioned:
        return "true"
    return (
        f"{row}.tableoid = ANY (ARRAY(SELECT t.tgrelid FROM pg_inherits h JOIN pg_trigger t ON t.tgrelid = h.inhrelid "
        "JOIN pg_description d ON d.objoid = t.oid AND d.classoid = 'pg_trigger'::regclass::oid "
        f"WHERE h.inhparent = to_regclass({literal(table.qualified)})::oid AND d.description = {literal(ADOPTED)}))"
    )


def trigger_function(name: str, body: str, *, security_definer: bool = False) -> Function:
    """Return the definition of a trigger function, which finds only what Postgres itself provides without a schema."""
    return Function(name, "", "trigger", "plpgsql", "VOLATILE", body, security_definer, SAFE_PATH)


def is_there(function: Function, table: MemoryTable, found: dict[str, Any]) -> bool:
    """Return whether the catalog has the function with this definition. `found` holds the catalog's functions."""
    entry = found.get(function.name + table.suffix)
    return entry is not None and function.matches(entry)


def fires(trigger: Trigger, table: MemoryTable, found: dict[str, Any]) -> bool:
    """Return whether the catalog has the trigger with this definition, ENABLE ALWAYS. `found` holds its triggers."""
    entry = found.get(trigger.name)
    if entry is None or entry["function"] != trigger.function + table.suffix:
        return False
    return trigger.matches(entry["definition"], entry["enabled"])
