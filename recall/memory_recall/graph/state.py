"""Reads whether the concept graph of a table is enabled and filled, how much is in it, and what differs from its rules.

The operator reads it every half minute, from databases of any size. So the number of links is an estimate of Postgres
where there are many, and no statement names a column of texts.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.graph.definition import EXTRACTION, differences
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.graph_relations import CHANGES, CONCEPTS, GRAPH, GRAPH_TABLES
from memory_recall.schema.table import MemoryTable

_COUNTED = 200_000  # links up to which they are counted


@dataclass(frozen=True, slots=True)
class GraphState:
    """What there is of a table's concept graph.

    `enabled` says that changes of memories are queued for it: it is neither disabled nor paused. `filled` says that
    every memory has been read once since, so that recalls use it. `pending` counts the changes that are still to be
    read, `links` the links (an estimate above 200,000), `memories` the memories whose links are up to date.
    `differences` names the rules that are missing or differ, which `enable` restores, and is "" if there are none;
    while there are some, nothing is filled. It is "" for a graph that is not enabled.
    """

    enabled: bool
    filled: bool = False
    pending: int = 0
    links: int = 0
    memories: int = 0
    differences: str = ""


async def graph_state(connection: AnyConnection, table: MemoryTable) -> GraphState:
    """Read the state of a table's concept graph."""
    with translated("looking at the concept graph"):
        there = [
            await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table.own(one)) for one in GRAPH_TABLES
        ]
    if not there[GRAPH_TABLES.index(CHANGES)]:
        return GraphState(enabled=False)
    found = await differences(connection, table)
    if not all(there):
        return GraphState(enabled=True, differences=found)
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
        filled=row is not None and row["filled_at"] is not None and not found,
        pending=counts["pending"],
        links=counts["links"],
        memories=counts["memories"],
        differences=found,
    )


def _counts(table: MemoryTable) -> str:
    concepts, changes = table.own(CONCEPTS), table.own(CHANGES)
    return f"""
        WITH pending AS MATERIALIZED (SELECT count(*) AS steps, count(DISTINCT memory_id) AS memories FROM {changes}),
             counted AS MATERIALIZED (SELECT count(*) AS links FROM (SELECT FROM {concepts} LIMIT {_COUNTED}) first)
        SELECT (SELECT steps FROM pending) AS pending,
               CASE WHEN (SELECT links FROM counted) < {_COUNTED} THEN (SELECT links FROM counted)
                    ELSE (SELECT greatest(reltuples, {_COUNTED})::bigint FROM pg_class
                           WHERE oid = to_regclass('{concepts.replace("'", "''")}')) END AS links,
               greatest(0, (SELECT count(*) FROM {table.qualified})
                         - (SELECT count(*) FROM {table.qualified} WHERE NOT {table.shareable()})
                         - (SELECT memories FROM pending)) AS memories
    """
