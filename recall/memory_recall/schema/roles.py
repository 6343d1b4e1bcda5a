"""Writes an SQL script that creates roles with the least rights that workers and recalls need.

Without the script, workers usually connect as the owner of the database, who may do everything in it. Backfill and sync
only read the text of a row and write its vector, and a recall only reads. The script is for a superuser to read and to
run, since the owner of a database may not create roles. It may be run again at any time, and then revokes every further
right of a role on the table.

The script also gives the roles settings that keep memories and queries out of the log of Postgres, which would
otherwise show the parameters of statements and the rows that a constraint refuses.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from memory_recall.errors import InvalidInput
from memory_recall.postgres.catalog_sql import SAFE_PATH
from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN
from memory_recall.schema.ddl import literal
from memory_recall.schema.graph_relations import GRAPH_TABLES, READ_BY_WORKERS, reader_rights, worker_rights
from memory_recall.schema.requirements.row_security import policy_unless_there
from memory_recall.schema.revisions import version_table
from memory_recall.schema.rules.expected import COLUMN_MODEL, OWN_TABLES, TEXT_HASH
from memory_recall.schema.supersessions import SUPERSESSIONS
from memory_recall.schema.table import ACTIVE, STANDBY, WORDS, MemoryTable, quoted
from memory_recall.schema.truncated import TRUNCATED

_LONGEST_NAME = 63
_LOG_SETTINGS = (("log_parameter_max_length", "0"), ("log_error_verbosity", "terse"))


def role_script(table: MemoryTable, *, worker: str, reader: str, row_security: bool = False) -> str:
    """Return the script for a table: `worker` may backfill and sync, `reader` may recall.

    With `row_security`, row-level security is enabled on the table, and the script has policies for both roles.

    Raises:
        InvalidInput: the names are equal, or one of them is not a valid name of a role.
    """
    if worker == reader or not all(map(_is_name, (worker, reader))):
        raise InvalidInput("These are no names of two roles.", f"Name two, each of at most {_LONGEST_NAME} bytes.")
    parts = [
        "-- Roles with the least rights for backfill and sync, and for recalls. Run it as a superuser, then set the",
        f"-- passwords: ALTER ROLE {quoted(worker)} PASSWORD '...'; ALTER ROLE {quoted(reader)} PASSWORD '...';",
        "",
        "-- No function that others have made in a schema of the search path is called with the rights of a superuser.",
        f"SET search_path = {', '.join(SAFE_PATH)};",
        *_role(table, worker),
        *_role(table, reader),
        *_worker_rights(table, quoted(worker)),
        *_reader_rights(table, quoted(reader)),
        *_graph_rights(table, quoted(worker), quoted(reader)),
        *(_policies(table, worker, reader) if row_security else ()),
        "",
        "RESET search_path;",
    ]
    return "\n".join(parts) + "\n"


def _is_name(name: str) -> bool:
    return name.isprintable() and 0 < len(name.encode()) <= _LONGEST_NAME


def _role(table: MemoryTable, role: str) -> list[str]:
    """Return statements that create the role if it is missing, set its log settings, and revoke its table rights."""
    owner = (
        f"IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = {literal(role)} AND (r.rolsuper OR r.oid = "
        f"(SELECT relowner FROM pg_class WHERE oid = {literal(table.qualified)}::regclass))) THEN "
        f"RAISE EXCEPTION 'Role % owns the table or is a superuser; name another one.', {literal(role)}; END IF;"
    )
    create = (
        f"IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {literal(role)}) THEN "
        f"CREATE ROLE {quoted(role)} LOGIN; END IF;"
    )
    connect = f"EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), {literal(role)});"
    relations = ", ".join([table.qualified, *_own_relations(table)])
    schemas = ", ".join(dict.fromkeys((quoted(table.schema), quoted(table.vector_schema or "public"))))
    return [
        "",
        f"DO LANGUAGE plpgsql {literal(f'BEGIN {owner} {create} {connect} END')};",
        *(f"ALTER ROLE {quoted(role)} SET {name} = {literal(value)};" for name, value in _LOG_SETTINGS),
        f"REVOKE ALL ON {relations} FROM {quoted(role)};",
        f"GRANT USAGE ON SCHEMA {schemas} TO {quoted(role)};",
    ]


def _own_relations(table: MemoryTable) -> list[str]:
    return [*map(table.own, OWN_TABLES), table.in_schema(version_table(table))]


def _worker_rights(table: MemoryTable, role: str) -> list[str]:
    written = [
        name
        for name in (table.vector_name(ACTIVE), table.vector_name(STANDBY), OWN_SEARCH_COLUMN)
        if name in table.catalog
    ]
    read = [*table.read_for(*READ_BY_WORKERS), *(["tableoid"] if table.is_partitioned else []), *written]
    records = ", ".join(map(table.own, (ACTIVE.failures, STANDBY.failures, TRUNCATED)))
    version = table.in_schema(version_table(table))
    own = ", ".join([table.own("memory_index_state"), table.own("memory_index_models"), version])
    return [
        "",
        f"GRANT SELECT ({', '.join(read)}), UPDATE ({', '.join(written)})",
        f"    ON {table.qualified} TO {role};",
        f"GRANT SELECT ON {own} TO {role};",
        f"GRANT UPDATE (digest, embedder_url, usual_cosine) ON {table.own('memory_index_models')} TO {role};",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {records} TO {role};",
        f"GRANT SELECT, UPDATE (text_hash, successor_hash, undone_at) ON {table.own(SUPERSESSIONS)} TO {role};",
        f"GRANT EXECUTE ON FUNCTION {table.own(TEXT_HASH)}(text) TO {role};",
        *_words_right(table, role),
    ]


def _reader_rights(table: MemoryTable, role: str) -> list[str]:
    state, models = table.own("memory_index_state"), table.own("memory_index_models")
    return [
        "",
        f"GRANT SELECT ON {table.qualified}, {state}, {models}, {table.own(SUPERSESSIONS)} TO {role};",
        f"GRANT UPDATE (wanted_at) ON {state} TO {role};",
        f"GRANT EXECUTE ON FUNCTION {table.own(COLUMN_MODEL)}(), {table.own(TEXT_HASH)}(text) TO {role};",
        *_words_right(table, role),
    ]


def _words_right(table: MemoryTable, role: str) -> list[str]:
    """Return the statement that lets a role make words, where the search column is ours."""
    if not table.names.has_own_search_column:
        return []
    return [f"GRANT EXECUTE ON FUNCTION {table.own(WORDS)}(text) TO {role};"]


def _policies(table: MemoryTable, worker: str, reader: str) -> list[str]:
    """Return statements that create policies by which both roles are shown every row, as their work demands."""
    return [
        "",
        "-- Row-level security is enabled. A recall returns one user's memories by conditions of its own.",
        f"{policy_unless_there(table, worker, writes=True)};",
        f"{policy_unless_there(table, reader, writes=False)};",
    ]


def _graph_rights(table: MemoryTable, worker: str, reader: str) -> list[str]:
    """Return a statement that grants the rights on the concept graph if it is enabled when the script is run."""
    names = [table.own(name) for name in GRAPH_TABLES]
    changes = [
        f"REVOKE ALL ON {', '.join(names)} FROM {worker}, {reader}",
        *worker_rights(table, worker),
        *reader_rights(table, reader),
    ]
    enabled = " AND ".join(f"to_regclass({literal(name)}) IS NOT NULL" for name in names)
    body = f"BEGIN IF {enabled} THEN {'; '.join(changes)}; END IF; END"
    return ["", f"DO LANGUAGE plpgsql {literal(body)};"]
