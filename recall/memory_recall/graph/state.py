"""Reads whether the concept graph of a table is enabled and filled, how much is in it, and what differs from its rules.

The operator reads it every half minute, from databases of any size. So the number of links is an estimate of Postgres
where there are many, and no statement names a column of texts.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.graph.definition import EXTRACTION, differences
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.ddl import literal
from memory_recall.schema.graph_relations import CHANGES, CONCEPTS, GRAPH, GRAPH_FUNCTIONS, GRAPH_TABLES
from memory_recall.schema.table import MemoryTable

_COUNTED = 200_000  # links up to which they are counted


@dataclass(frozen=True, slots=True)
class GraphState:
    """What there is of a table's concept graph.

    `exists` says that any of its tables, functions or triggers is there. `enabled` says that changes of memories are
    queued for it, and `kept` that its tables are there without this: it was paused. `queued` says that `enable` has
    queued all memories, `filled` that every memory has been read once since, so that recalls use the graph. `pending`
    counts the changes that are still to be read, and `oldest` is the number of the first of them, or None; changes are
    numbered in their order. `links` counts the links (an estimate above 200,000), and `memories` the memories whose
    links are up to date or, of a kept graph, 0. `differences` names the rules that are missing or differ, and is
    "" if there are none; `enable` restores them, or `pause` those of a kept graph. While there are some, nothing is
    filled.
    """

    enabled: bool = False
    exists: bool = False
    kept: bool = False
    queued: bool = False
    filled: bool = False
    pending: int = 0
    oldest: int | None = None
    links: int = 0
    memories: int = 0
    differences: str = ""


async def graph_state(connection: AnyConnection, table: MemoryTable) -> GraphState:
    """Read the state of a table's concept graph."""
    there = await _tables_there(connection, table)
    if CHANGES not in there:
        return await _without_queue(connection, table, there)
    found = await differences(connection, table)
    if len(there) < len(GRAPH_TABLES):
        return GraphState(enabled=True, exists=True, differences=found)
    with translated("looking at the concept graph"):
        row = await connection.fetchrow(f"SELECT extraction, filled_at FROM {table.own(GRAPH)}")
        counts = await connection.fetchrow(_counts(table))
    assert counts is not None  # noqa: S101  (a SELECT without FROM yields one row)
    if row is None:
        found = ", ".join(filter(None, [found, f"row of {GRAPH}"]))
    elif row["extraction"] != EXTRACTION:
        found = ", ".join(filter(None, [found, f"extraction {row['extraction']}, not {EXTRACTION}"]))
    return GraphState(
        enabled=True,
        exists=True,
        queued=row is not None,
        filled=row is not None and row["filled_at"] is not None and not found,
        pending=counts["pending"],
        oldest=counts["oldest"],
        links=counts["links"],
        memories=counts["memories"],
        differences=found,
    )


async def _tables_there(connection: AnyConnection, table: MemoryTable) -> set[str]:
    with translated("looking at the concept graph"):
        return {
            one
            for one in GRAPH_TABLES
            if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table.own(one))
        }


async def _without_queue(connection: AnyConnection, table: MemoryTable, there: set[str]) -> GraphState:
    """Read the state of a graph that is not enabled: kept, disabled, or what an interrupted command has left of it."""
    if there == {GRAPH, CONCEPTS}:
        with translated("looking at the concept graph"):
            links = await connection.fetchval(f"SELECT {_links(table)}")
        found = await differences(connection, table, queue=False)
        return GraphState(exists=True, kept=True, links=links, differences=found)
    with translated("looking at the concept graph"):  # a trigger cannot be there without its function
        functions = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
            "WHERE n.nspname = $1 AND p.proname = ANY($2::text[]))",
            table.schema,
            [name + table.suffix for name in GRAPH_FUNCTIONS],
        )
    return GraphState(exists=bool(there) or functions)


def _links(table: MemoryTable) -> str:
    concepts = table.own(CONCEPTS)
    counted = f"(SELECT count(*) FROM (SELECT FROM {concepts} LIMIT {_COUNTED}) first)"
    return f"""
        CASE WHEN {counted} < {_COUNTED} THEN {counted}
             ELSE (SELECT greatest(reltuples, {_COUNTED})::bigint FROM pg_class
                    WHERE oid = to_regclass({literal(concepts)})::oid) END
    """


def _counts(table: MemoryTable) -> str:
    changes = table.own(CHANGES)
    return f"""
        WITH pending AS MATERIALIZED (
            SELECT count(*) AS steps, min(step) AS oldest, count(DISTINCT memory_id) AS memories FROM {changes}
        )
        SELECT (SELECT steps FROM pending) AS pending, (SELECT oldest FROM pending) AS oldest,
               {_links(table)} AS links,
               greatest(0, (SELECT count(*) FROM {table.qualified})
                         - (SELECT count(*) FROM {table.qualified} WHERE NOT {table.shareable()})
                         - (SELECT memories FROM pending)) AS memories
    """
