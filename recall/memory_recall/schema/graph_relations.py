"""The names of what the concept graph adds to a table of memories, the rights on it, and how it is emptied and dropped.

The graph's rules, and what creates them, are in `memory_recall.graph`. The schema must know this much of them, because
the numbers of concepts come from the schema's hash of texts, because `memory migrate --to base` drops the graph, and
because `memory roles` grants rights on it.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Container

from memory_recall.schema.columns.used import TEXTS
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
GRAPH_FUNCTIONS = (CHANGED, EMPTIED, ADDED, CONCEPT)

MEMORY_TRIGGERS = (
    "zz_memory_graph_insert",
    "zz_memory_graph_update",
    "zz_memory_graph_delete",
    "zz_memory_graph_truncate",
)
_TEXTS = ("content", "tags", "expanded_keywords")
_LONGEST_TEXT = 100_000  # characters
READ_BY_WORKERS = ("id", "content", "is_sensitive", "deleted_at")
"""What every worker reads of the memories, whether or not it fills the graph."""


def text_columns(table: MemoryTable) -> list[str]:
    """Return our names of what concepts are read from: `content`, and what there is of tags and keywords."""
    return [name for name in _TEXTS if table.columns.get(name) in TEXTS]


def concept_texts(table: MemoryTable) -> str:
    """Return the SELECT list of what concepts of the row `m` are read from: content, tags and keywords, '' if missing.

    At most 100,000 characters of each are read.
    """
    there, row = text_columns(table), table.row("m")
    return ", ".join(
        f"coalesce(left({row.text(name)}, {_LONGEST_TEXT}), '') AS {name}" if name in there else f"'' AS {name}"
        for name in _TEXTS
    )


def concept_characters(table: MemoryTable) -> str:
    """Return an SQL expression for the number of characters that `concept_texts` returns of the row `m`, or more.

    The bytes of a text are counted, since Postgres knows their number without reading the text.
    """
    row = table.row("m")
    sizes = (f"coalesce(least(octet_length({row.text(name)}), {_LONGEST_TEXT}), 0)" for name in text_columns(table))
    return " + ".join(sizes)


def worker_rights(table: MemoryTable, role: str) -> list[str]:
    """Return GRANT statements for a role, quoted for SQL, that fills the graph."""
    return [
        f"GRANT SELECT ({', '.join(_read_columns(table))}) ON {table.qualified} TO {role}",
        f"GRANT SELECT, UPDATE (filled_at) ON {table.own(GRAPH)} TO {role}",
        f"GRANT SELECT, INSERT, DELETE ON {table.own(CONCEPTS)} TO {role}",
        f"GRANT SELECT, UPDATE, DELETE ON {table.own(CHANGES)} TO {role}",
        f"GRANT EXECUTE ON FUNCTION {table.own(CONCEPT)}(text, text) TO {role}",
    ]


def reader_rights(table: MemoryTable, role: str) -> list[str]:
    """Return GRANT statements for a role, quoted for SQL, that recalls."""
    return [
        f"GRANT SELECT ON {table.own(GRAPH)}, {table.own(CONCEPTS)} TO {role}",
        f"GRANT EXECUTE ON FUNCTION {table.own(CONCEPT)}(text, text) TO {role}",
    ]


def ended_rights(table: MemoryTable, role: str) -> list[str]:
    """Return REVOKE statements for a role that no longer fills the graph: the rights on columns of the memories."""
    kept = table.read_for(*READ_BY_WORKERS)
    more = [column for column in _read_columns(table) if column not in kept]
    return [f"REVOKE SELECT ({', '.join(more)}) ON {table.qualified} FROM {role}"] if more else []


def _read_columns(table: MemoryTable) -> list[str]:
    """Return the columns of the user's table, quoted for SQL, that the filling of the graph reads beside the key."""
    return table.read_for(*text_columns(table), "user_id")


def drop_graph(table: MemoryTable, *, others: Container[str]) -> list[str]:
    """Return statements, each for a transaction of its own, that drop the graph's triggers, tables and functions.

    `others` has the full names of the tables that are not ours, although they have names of ours.
    """
    return [
        *(f"DROP TRIGGER IF EXISTS {name} ON {table.qualified}" for name in MEMORY_TRIGGERS),
        *(f"DROP TABLE IF EXISTS {table.own(name)}" for name in GRAPH_TABLES if table.own(name) not in others),
        *(f"DROP FUNCTION IF EXISTS {table.own(name)}" for name in GRAPH_FUNCTIONS),
    ]


def forget_graph(table: MemoryTable) -> str:
    """Return a statement that empties the graph, if there is one: its links, and the record that it is filled."""
    graph, concepts = table.own(GRAPH), table.own(CONCEPTS)
    body = (
        f"BEGIN IF to_regclass({literal(graph)}) IS NOT NULL THEN DELETE FROM {graph}; END IF; "
        f"IF to_regclass({literal(concepts)}) IS NOT NULL THEN TRUNCATE {concepts}; END IF; END"
    )
    return f"DO LANGUAGE plpgsql {literal(body)}"
