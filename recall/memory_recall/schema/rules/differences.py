"""Compares the rules of a table with their definitions.

They are compared by definition and not by name, because a constraint still applies to a column that was renamed.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from dataclasses import dataclass
from typing import Any

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.definitions import Function, Trigger, fires, is_there, look_up, look_up_partitions
from memory_recall.schema.rules.expected import (
    FUNCTIONS,
    OWN_TABLES,
    TRUNCATE_TRIGGER,
    constraint,
    functions,
    partial_indexes,
    triggers,
    vector_columns,
)
from memory_recall.schema.table import STANDBY, MemoryTable, VectorColumn, describe


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


async def has_own_tables(connection: AnyConnection, table: MemoryTable) -> bool:
    """Return whether the columns that we add and all our own tables exist."""
    with translated("looking up our own tables"):
        found: bool = await connection.fetchval(
            "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM jsonb_array_elements_text($1::text::jsonb) name",
            json.dumps([table.own(name) for name in OWN_TABLES]),
        )
    return found and table.embedding_dimensions is not None and _has_own_search_column(table)


def _has_own_search_column(table: MemoryTable) -> bool:
    return not table.names.has_own_search_column or "search_vector" in table.columns


async def differences(connection: AnyConnection, table: MemoryTable) -> Differences:
    """Compare the rules of a table at the last revision with their definitions.

    While a swap has added the standby column, that column's rules are compared too; its constraint need not be
    validated yet.
    """
    names = [name + table.suffix for name in FUNCTIONS]
    with translated("comparing the rules"):
        state = await connection.fetchrow(
            "SELECT active_model, discarding, table_oid::oid = to_regclass($1)::oid AS same "
            f"FROM {table.own('memory_index_state')}",
            table.qualified,
        )
    found = await look_up(connection, table.schema, table.qualified, names)
    if state is None:
        return Differences(another_table=True)
    wanted = functions(table, state["active_model"], found["functions"])
    unmet, columns = _unmet(table, found)
    unmet += [] if fires(TRUNCATE_TRIGGER, table, found["triggers"]) else [TRUNCATE_TRIGGER]
    inside = await look_up_partitions(connection, table.schema, table.qualified)
    partitions = []
    for name, there in inside.items():
        more_triggers, more_columns = _unmet(table, there)
        if more_triggers or more_columns:
            partitions.append(name)
        unmet += [one for one in more_triggers if one not in unmet]
        columns += [one for one in more_columns if one not in columns]
    return Differences(
        tuple(one for one in wanted if not is_there(one, table, found["functions"])),
        tuple(unmet),
        tuple(columns),
        tuple(name for name, (_, rows) in partial_indexes(table).items() if found["indexes"].get(name) != rows),
        tuple(partitions),
        tuple(name for name, there in inside.items() if there["new"]),
        another_table=state["same"] is not True,
        discarding=state["discarding"],
    )


def _unmet(table: MemoryTable, found: dict[str, Any]) -> tuple[list[Trigger], list[VectorColumn]]:
    """Return the triggers, and the columns with the constraints, that a relation lacks or has in another form."""
    return (
        [one for one in triggers(table) if not fires(one, table, found["triggers"])],
        [one for one in vector_columns(table) if not _holds(one, table, found["constraints"])],
    )


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
