"""The names of what the concept graph adds to a table of memories, and how it is emptied and dropped.

The graph's rules, and what creates them, are in `memory_recall.graph`. The schema must know this much of them, because
the numbers of concepts come from the schema's hash of texts, and because `memory migrate --to base` drops the graph.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable

GRAPH = "memory_graph"
CONCEPTS = "memory_concepts"
CHANGES = "memory_graph_changes"
GRAPH_TABLES = (GRAPH, CONCEPTS, CHANGES)

CONCEPT = "memory_index_concept"
CHANGED = "memory_index_graph_changed"
EMPTIED = "memory_index_graph_emptied"
ADDED = "memory_index_graph_added"

MEMORY_TRIGGERS = (
    "zz_memory_graph_insert",
    "zz_memory_graph_update",
    "zz_memory_graph_delete",
    "zz_memory_graph_truncate",
)


def drop_graph(table: MemoryTable) -> list[str]:
    """Return statements, each for a transaction of its own, that drop the graph's triggers, tables and functions."""
    return [
        *(f"DROP TRIGGER IF EXISTS {name} ON {table.qualified}" for name in MEMORY_TRIGGERS),
        *(f"DROP TABLE IF EXISTS {table.own(name)}" for name in GRAPH_TABLES),
        *(f"DROP FUNCTION IF EXISTS {table.own(name)}" for name in (CHANGED, EMPTIED, ADDED, CONCEPT)),
    ]


def forget_graph(table: MemoryTable) -> str:
    """Return a statement that drops all links, and the record that the graph is filled, where there is a graph."""
    graph, concepts = table.own(GRAPH), table.own(CONCEPTS)
    body = (
        f"BEGIN IF to_regclass({literal(graph)}) IS NOT NULL THEN DELETE FROM {graph}; END IF; "
        f"IF to_regclass({literal(concepts)}) IS NOT NULL THEN TRUNCATE {concepts}; END IF; END"
    )
    return f"DO LANGUAGE plpgsql {literal(body)}"
