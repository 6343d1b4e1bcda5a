"""The table of memories as found in the catalog, and the SQL expressions that depend on it.

The table may have been created by another program, so its form is read from the catalog: its schema (found once through
the session's search_path, and named in every later statement), whether `is_sensitive` is a boolean or an integer, and
the schema of pgvector's types. All other modules use the predicates defined here, so that "sensitive" has a single
definition. An unknown sensitivity (NULL) counts as sensitive, because a missing vector can still be computed later.

Two columns may hold vectors. `embedding` is what recalls read. `embedding_standby` exists only from the start of a
model swap until the swap is finished or aborted: before the flip it holds the next model's vectors, and after the flip
the previous model's, for a rollback. The flip exchanges the names of the two columns and of their indexes and
constraints, so that `embedding` is always the active model's column.

The table may be partitioned. Our statements name the partitioned table, and Postgres carries them to its partitions.

Our own tables and functions live in the schema of the memories. For the first table that is migrated in a schema, they
have plain names. For any other table, their names end in `__` and the table's name.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from memory_recall.errors import DatabaseRejected, ExtensionMissing, SchemaUnsupported
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.used import Generated
from memory_recall.schema.names import index_name, own_suffix
from memory_recall.schema.partitions import READ_PARTITIONS, TablePartition

NOTIFY_CHANNEL = "memory_index_pending"
GUARDED_WRITER = "memory_index.writer"  # a setting of our writers' sessions, which name the model of what they write
GUARDED = "guarded"


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """One of the two vector columns.

    `role` is the column of `memory_index_state` that holds the id of this vector column's model. `failures` is the name
    of the table of recorded failures, and `constraint` that of the constraint on the column.
    """

    name: str
    role: Literal["active_model", "next_model"]
    failures: str
    constraint: str

    def pending_index(self, table: str) -> str:
        """Return the name of the partial index over pending rows, which lack a vector in this column."""
        return index_name(table, f"{self.name}_pending")


ACTIVE = VectorColumn("embedding", "active_model", "memory_embedding_failures", "memory_index_no_private_embedding")
STANDBY = VectorColumn("embedding_standby", "next_model", "memory_standby_failures", "memory_index_no_private_standby")
EMBEDDING_COLUMN = ACTIVE.name

_DESCRIBE = f"""
SELECT wanted.schema, c.relkind::text AS kind,
       EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) AS has_children,
       (SELECT v.nspname FROM pg_extension e JOIN pg_namespace v ON v.oid = e.extnamespace WHERE e.extname = 'vector')
           AS vector_schema,
       (SELECT coalesce(jsonb_object_agg(a.attname, format_type(a.atttypid, NULL)), '{{}}')::text
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
       (SELECT coalesce(jsonb_object_agg(a.attname, CASE a.attgenerated WHEN 's' THEN 'stored' ELSE 'virtual' END),
                        '{{}}')::text
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped) AS generated,
       (SELECT coalesce(jsonb_agg(a.attname), '[]')::text FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped) AS not_null,
       (SELECT a.atttypmod FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped) AS dimensions,
       (SELECT a.atttypmod FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attname = $3 AND NOT a.attisdropped) AS standby_dimensions,
       to_regclass(format('%I.%I', wanted.schema, 'memory_index_state')) IS NOT NULL AS plain,
       to_regclass(format('%I.%I', wanted.schema, 'memory_index_state' || $4::text)) IS NOT NULL AS suffixed,
       EXISTS (SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id'
                WHERE x.indrelid = c.oid AND x.indkey[0] = a.attnum AND x.indpred IS NULL AND x.indisvalid)
           AS id_indexed,
       {READ_PARTITIONS}
  FROM (SELECT oid, coalesce($5, (SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                                   WHERE c.oid = found.oid), current_schema()::text) AS schema
          FROM (SELECT to_regclass($1)::oid AS oid) found) wanted
  LEFT JOIN pg_class c ON c.oid = wanted.oid
"""


def quoted(identifier: str) -> str:
    """Return an identifier quoted for SQL."""
    return '"' + identifier.replace('"', '""') + '"'


@dataclass(frozen=True)
class MemoryTable:
    """The table of memories as the catalog describes it. The names of our own relations for it end in `suffix`."""

    schema: str
    name: str
    columns: dict[str, str]
    vector_schema: str | None
    embedding_dimensions: int | None
    standby_dimensions: int | None = None
    suffix: str = ""
    kind: str = "r"
    has_children: bool = False
    partitions: tuple[TablePartition, ...] = ()
    partition_key: tuple[str | None, ...] = ()
    id_indexed: bool = True
    generated: Mapping[str, Generated] = field(default_factory=dict)
    not_null: Collection[str] = ()

    @property
    def exists(self) -> bool:
        """Whether the table exists."""
        return bool(self.columns)

    @property
    def qualified(self) -> str:
        """The name of the table with its schema, quoted for SQL."""
        return self.in_schema(self.name)

    @property
    def is_partitioned(self) -> bool:
        """Whether the table is partitioned."""
        return self.kind == "p"

    @property
    def partitioned_by_user(self) -> bool:
        """Whether all memories of a user are in one partition, so that recalls of this user need no other."""
        return self.partition_key == ("user_id",)

    def estimated_rows(self, *, largest_partition: bool = False) -> str:
        """Return an SQL expression for the number of rows by Postgres's last estimate; 0 if there is none yet.

        The estimate of a partitioned table itself is not kept up to date, so those of its partitions are added, or the
        largest of them is taken.
        """
        relation = self.qualified.replace("'", "''")
        if not self.is_partitioned:
            return f"(SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = to_regclass('{relation}'))"
        combined = "max" if largest_partition else "sum"
        return (
            f"(SELECT coalesce({combined}(greatest(p.reltuples, 0)), 0)::float8 FROM pg_inherits i "
            f"JOIN pg_class p ON p.oid = i.inhrelid WHERE i.inhparent = to_regclass('{relation}'))"
        )

    @property
    def sensitive_type(self) -> Literal["boolean", "integer"]:
        """The type of `is_sensitive`, boolean or integer."""
        return "boolean" if self.columns.get("is_sensitive", "boolean") == "boolean" else "integer"

    def in_schema(self, relation: str) -> str:
        """Return the full name of a relation in the schema of the memories, quoted for SQL."""
        return f"{quoted(self.schema)}.{quoted(relation)}"

    def own(self, relation: str) -> str:
        """Return the full name of one of our own tables or functions for this table, quoted for SQL."""
        return self.in_schema(relation + self.suffix)

    def vector_type(self, dimensions: int | None = None) -> str:
        """Return the type `halfvec` with its schema, which need not be in the search path."""
        size = "" if dimensions is None else f"({dimensions})"
        return f"{quoted(self.vector_schema or 'public')}.halfvec{size}"

    def sensitive(self, row: str = "") -> str:
        """Return an SQL expression for whether a row (an alias such as `m` or `NEW`) is sensitive."""
        column = f"{row}.is_sensitive" if row else "is_sensitive"
        return f"({column} IS NOT FALSE)" if self.sensitive_type == "boolean" else f"({column} IS DISTINCT FROM 0)"

    def shareable(self, row: str = "") -> str:
        """Return an SQL expression, as Postgres prints it, for whether a row is neither sensitive nor deleted."""
        deleted = f"{row}.deleted_at" if row else "deleted_at"
        return f"((NOT {self.sensitive(row)}) AND ({deleted} IS NULL))"

    def pending(self, row: str = "", column: str = EMBEDDING_COLUMN) -> str:
        """Return an SQL expression for whether a row may have a vector and has none.

        The partial index over pending rows has the same expression as its condition.
        """
        embedding = f"{row}.{column}" if row else column
        return f"(({embedding} IS NULL) AND {self.shareable(row)})"

    def require_exists(self) -> None:
        """Refuse to work on a table that does not exist.

        Raises:
            SchemaUnsupported: there is no such table.
        """
        if not self.exists:
            raise SchemaUnsupported(f"There is no table {self.schema}.{self.name}.", "Run memory migrate first.")

    def require_extension(self) -> None:
        """Refuse to work in a database that lacks pgvector.

        Raises:
            ExtensionMissing: the extension does not exist in this database.
        """
        if self.vector_schema is None:
            raise ExtensionMissing(
                "The extension vector (pgvector) does not exist in this database.",
                "Let the operator's Database object create it, or have a superuser run CREATE EXTENSION vector.",
            )


async def describe(connection: AnyConnection, table: str) -> MemoryTable:
    """Look up the table in the catalog; if `table` names no schema, the search path decides.

    Raises:
        DatabaseRejected: the search path names no schema that exists.
    """
    wanted = ".".join(quoted(part) for part in table.split("."))
    given_schema, _, name = table.rpartition(".")
    with translated("looking up the table of memories"):
        row = await connection.fetchrow(
            _DESCRIBE, wanted, ACTIVE.name, STANDBY.name, own_suffix(name), given_schema or None
        )
        assert row is not None  # noqa: S101  (the FROM clause always yields one row)
        schema = row["schema"]
        if schema is None:
            raise DatabaseRejected("The search_path names no schema that exists.", "Set search_path for the role.")
        owner = None
        if row["plain"] and not row["suffixed"]:
            owner = await connection.fetchval(f"SELECT table_name FROM {quoted(schema)}.memory_index_state")
    return MemoryTable(
        schema=schema,
        name=name,
        columns=json.loads(row["columns"]),
        vector_schema=row["vector_schema"],
        embedding_dimensions=row["dimensions"],
        standby_dimensions=row["standby_dimensions"],
        suffix=own_suffix(name) if row["suffixed"] or owner not in {None, name} else "",
        kind=row["kind"] or "r",
        has_children=row["has_children"],
        partitions=TablePartition.all_from_json(row["partitions"]),
        partition_key=tuple(json.loads(row["partition_key"])),
        id_indexed=row["id_indexed"],
        generated=json.loads(row["generated"]),
        not_null=json.loads(row["not_null"]),
    )
