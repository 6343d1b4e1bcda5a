"""Row-level security must not hide rows from a role that works on the table.

Postgres leaves hidden rows out without a word: a worker would report that nothing is pending, and a recall would find
nothing. So a role that row-level security applies to needs a policy that shows it every row. Whose memories a recall
may return is decided by the conditions that it puts on every row itself.
"""

from collections.abc import Sequence

from memory_recall.schema.ddl import literal
from memory_recall.schema.requirements.faults import Fault
from memory_recall.schema.table import MemoryTable, quoted


def hides_rows(relation: str, *, writes: bool) -> str:
    """Return an SQL condition for whether policies may hide rows from the current role.

    `relation` is SQL for the table's OID. With `writes`, a role that may update the table must also be shown every row
    for that.
    """
    shown = _shows_all(relation, "r")
    if writes:
        shown += f" AND (NOT has_any_column_privilege({relation}, 'UPDATE') OR {_shows_all(relation, 'w')})"
    return f"(row_security_active({relation}) AND NOT ({shown}))"


def _shows_all(relation: str, command: str) -> str:
    """Return an SQL condition for whether a policy permits a command on every row, and none restricts it."""
    concerned = (
        f"FROM pg_policy p WHERE p.polrelid = {relation} AND p.polcmd IN ('*', '{command}') "
        "AND EXISTS (SELECT FROM unnest(p.polroles) role WHERE role = 0 OR pg_has_role(role, 'USAGE'))"
    )
    every_row = (
        "pg_get_expr(p.polqual, p.polrelid) = 'true' "
        "AND coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'"
    )
    return (
        f"(EXISTS (SELECT {concerned} AND p.polpermissive AND {every_row}) "
        f"AND NOT EXISTS (SELECT {concerned} AND NOT p.polpermissive AND NOT ({every_row})))"
    )


def row_security_faults(table: MemoryTable, role: str, hidden: Sequence[str], *, writes: bool) -> list[Fault]:
    """Return a fault for each relation in `hidden`, full names quoted for SQL, of which a role is not shown all rows.

    The relations are the table of memories and our own tables for it, which need no row-level security.
    """
    return [
        Fault(
            f"Row-level security hides rows of {relation} from the role {role}.",
            f"Run {policy(table, role, writes=writes)}, or, where a restrictive policy hides them, "
            f"ALTER ROLE {quoted(role)} BYPASSRLS;"
            if relation == table.qualified
            else f"Run ALTER TABLE {relation} DISABLE ROW LEVEL SECURITY;",
        )
        for relation in hidden
    ]


def policy(table: MemoryTable, role: str, *, writes: bool) -> str:
    """Return the statement that creates a policy by which a role is shown every row, for reading or for all it may."""
    command = "" if writes else " FOR SELECT"
    return f"CREATE POLICY {quoted(_policy_name(role))} ON {table.qualified}{command} TO {quoted(role)} USING (true)"


def policy_unless_there(table: MemoryTable, role: str, *, writes: bool) -> str:
    """Return a statement that creates the policy unless there is one of its name."""
    there = (
        f"SELECT FROM pg_policy WHERE polrelid = {literal(table.qualified)}::regclass "
        f"AND polname = {literal(_policy_name(role))}"
    )
    body = f"BEGIN IF NOT EXISTS ({there}) THEN {policy(table, role, writes=writes)}; END IF; END"
    return f"DO LANGUAGE plpgsql {literal(body)}"


def _policy_name(role: str) -> str:
    """Return a name of at most 63 bytes, as Postgres would cut it off."""
    return f"memory_index_{role}".encode()[:63].decode(errors="ignore")
