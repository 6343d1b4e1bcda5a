"""Gives the roles of workers and recalls their rights on the concept graph, and ends them.

The graph's tables come and go, so the rights follow those on tables that stay: who may insert recorded failures is a
worker, and who may read the state of the index recalls.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Callable

from memory_recall.schema.ddl import literal
from memory_recall.schema.graph_relations import ended_rights, reader_rights, worker_rights
from memory_recall.schema.table import ACTIVE, MemoryTable

_MARK = "$role$"  # stands for the role's name until the statement runs


def grant(table: MemoryTable) -> list[str]:
    """Return statements that grant the rights to all roles that are workers or recall."""
    return [_for_workers(table, worker_rights), _for_each(table, "memory_index_state", "SELECT", reader_rights)]


def revoke(table: MemoryTable) -> list[str]:
    """Return statements that end the rights which do not end with the graph's tables."""
    return [_for_workers(table, ended_rights)]


def _for_workers(table: MemoryTable, rights: Callable[[MemoryTable, str], list[str]]) -> str:
    return _for_each(table, ACTIVE.failures, "INSERT", rights)


def _for_each(
    table: MemoryTable, relation: str, privilege: str, rights: Callable[[MemoryTable, str], list[str]]
) -> str:
    """Return a statement that changes the rights of each role that was granted the privilege on one of our tables."""
    patterns = (one.replace("%", "%%").replace(_MARK, "%I") for one in rights(table, _MARK))
    changes = " ".join(f"EXECUTE pg_catalog.format({literal(one)}, found.role);" for one in patterns)
    own = literal(table.own(relation))
    body = f"""
        DECLARE found record;
        BEGIN
            FOR found IN
                SELECT DISTINCT r.rolname AS role
                  FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
                 WHERE c.oid = {own}::regclass::oid AND a.privilege_type = {literal(privilege)}
                   AND a.grantee <> c.relowner
            LOOP
                {changes or "NULL;"}
            END LOOP;
        END"""
    return f"DO LANGUAGE plpgsql {literal(body)}"
