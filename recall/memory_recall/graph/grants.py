"""Gives the roles of workers and recalls their rights on the concept graph's tables.

The tables come and go, so the rights follow those on tables that stay: who may insert recorded failures is a worker,
and who may read the state of the index recalls.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.graph.definition import text_columns
from memory_recall.schema.ddl import literal
from memory_recall.schema.graph_relations import CHANGES, CONCEPT, CONCEPTS, GRAPH
from memory_recall.schema.table import ACTIVE, MemoryTable


def grants(table: MemoryTable) -> list[str]:
    """Return statements that grant the rights to all roles that are workers or recall."""
    return [
        _to_holders_of(table.own(ACTIVE.failures), "INSERT", worker_rights(table)),
        _to_holders_of(table.own("memory_index_state"), "SELECT", reader_rights(table)),
    ]


def worker_rights(table: MemoryTable) -> list[str]:
    """Return GRANT statements without the role at their end, for a role that fills the graph."""
    read = [*text_columns(table), *(["user_id"] if "user_id" in table.columns else [])]
    return [
        f"GRANT SELECT ({', '.join(read)}) ON {table.qualified} TO ",
        f"GRANT SELECT, UPDATE (filled_at) ON {table.own(GRAPH)} TO ",
        f"GRANT SELECT, INSERT, DELETE ON {table.own(CONCEPTS)} TO ",
        f"GRANT SELECT, UPDATE, DELETE ON {table.own(CHANGES)} TO ",
        f"GRANT EXECUTE ON FUNCTION {table.own(CONCEPT)}(text, text) TO ",
    ]


def reader_rights(table: MemoryTable) -> list[str]:
    """Return GRANT statements without the role at their end, for a role that recalls."""
    return [f"GRANT SELECT ON {table.own(GRAPH)}, {table.own(CONCEPTS)} TO "]


def _to_holders_of(relation: str, privilege: str, statements: list[str]) -> str:
    """Return a statement that runs the GRANT statements for each role that was granted the privilege on a relation."""
    granted = " ".join(f"EXECUTE {literal(one)} || found.role;" for one in statements)
    body = f"""
        DECLARE found record;
        BEGIN
            FOR found IN
                SELECT quote_ident(r.rolname) AS role
                  FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
                 WHERE c.oid = {literal(relation)}::regclass AND a.privilege_type = {literal(privilege)}
                   AND a.grantee <> c.relowner
            LOOP
                {granted}
            END LOOP;
        END"""
    return f"DO LANGUAGE plpgsql {literal(body)}"
