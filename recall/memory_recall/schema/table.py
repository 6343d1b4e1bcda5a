"""What the table of memories looks like here, and the SQL expressions that follow from it.

The table may be older than we are, so nothing about it is assumed: which schema it lives in (found once through the
session's search_path, quoted in full afterwards), whether `is_sensitive` is a boolean or an integer, and in which
schema pgvector's types are. Every other module takes its predicates from here, so "sensitive" has a single definition.
An unknown sensitivity (NULL) counts as sensitive: a vector that was not made can still be made later.
"""

import json
from dataclasses import dataclass
from typing import Literal

from memory_recall.errors import DatabaseRejected, SchemaUnsupported
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns import ACTIVE, STANDBY

EMBEDDING_COLUMN = ACTIVE.name
NOTIFY_CHANNEL = "memory_index_pending"
_INTEGERS = ("smallint", "integer", "bigint")

_DESCRIBE = """
SELECT coalesce(n.nspname, current_schema()) AS schema, c.oid AS oid,
       (SELECT v.nspname FROM pg_extension e JOIN pg_namespace v ON v.oid = e.extnamespace WHERE e.extname = 'vector')
           AS vector_schema,
       (SELECT coalesce(jsonb_object_agg(a.attname, format_type(a.atttypid, NULL)), '{}')::text
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
       (SELECT a.atttypmod FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped) AS dimensions,
       (SELECT a.atttypmod FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attname = $3 AND NOT a.attisdropped) AS standby_dimensions
  FROM (SELECT to_regclass($1)::oid AS oid) wanted
  LEFT JOIN pg_class c ON c.oid = wanted.oid
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
"""


def quoted(identifier: str) -> str:
    """The identifier as SQL writes it when nothing about it is known."""
    return '"' + identifier.replace('"', '""') + '"'


@dataclass(frozen=True)
class MemoryTable:
    """The table of memories as found in the catalog."""

    schema: str
    name: str
    columns: dict[str, str]
    vector_schema: str | None
    embedding_dimensions: int | None
    standby_dimensions: int | None = None

    @property
    def exists(self) -> bool:
        """Whether there is such a table at all."""
        return bool(self.columns)

    @property
    def qualified(self) -> str:
        """Schema and table, quoted."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def sensitive_type(self) -> Literal["boolean", "integer"]:
        """Which of the two types `is_sensitive` has."""
        return "boolean" if self.columns.get("is_sensitive", "boolean") == "boolean" else "integer"

    def own(self, relation: str) -> str:
        """One of our own tables or functions, which live beside the memories."""
        return f"{quoted(self.schema)}.{quoted(relation)}"

    def vector_type(self, dimensions: int | None = None) -> str:
        """`halfvec` with its schema, which need not be in the search path."""
        size = "" if dimensions is None else f"({dimensions})"
        return f"{quoted(self.vector_schema or 'public')}.halfvec{size}"

    def sensitive(self, row: str = "") -> str:
        """Whether a row (an alias such as `m` or `NEW`) is sensitive."""
        column = f"{row}.is_sensitive" if row else "is_sensitive"
        return f"({column} IS NOT FALSE)" if self.sensitive_type == "boolean" else f"({column} IS DISTINCT FROM 0)"

    def shareable(self, row: str = "") -> str:
        """Whether a row may have a vector: not sensitive and not deleted."""
        deleted = f"{row}.deleted_at" if row else "deleted_at"
        return f"(NOT {self.sensitive(row)} AND {deleted} IS NULL)"

    def pending(self, row: str = "", column: str = EMBEDDING_COLUMN) -> str:
        """Whether a row may have a vector and has none; the partial index uses exactly this expression."""
        embedding = f"{row}.{column}" if row else column
        return f"({embedding} IS NULL AND {self.shareable(row)})"

    def require_exists(self) -> None:
        """Refuse to work on a table that is not there.

        Raises:
            SchemaUnsupported: there is no such table.
        """
        if not self.exists:
            raise SchemaUnsupported(f"There is no table {self.schema}.{self.name}.", "Run memory migrate first.")

    def require_supported(self) -> None:
        """Refuse a table that lacks what the rules need.

        Raises:
            SchemaUnsupported: a column is missing or of a type that cannot mean what it must.
        """
        if not self.exists:
            return
        missing = [name for name in ("id", "content", "is_sensitive", "deleted_at") if name not in self.columns]
        if missing:
            raise SchemaUnsupported(
                f"Table {self.schema}.{self.name} has no column {', '.join(missing)}.",
                "Let the memory API run its own migrations first, or name the right table.",
            )
        if self.columns["id"] not in _INTEGERS:
            raise SchemaUnsupported(
                f"{self.schema}.{self.name}.id is {self.columns['id']}, not an integer.", "Use an integer key."
            )
        if self.columns["is_sensitive"] not in ("boolean", *_INTEGERS):
            raise SchemaUnsupported(
                f"{self.schema}.{self.name}.is_sensitive is {self.columns['is_sensitive']}.",
                "Make it boolean or integer.",
            )


async def describe(connection: AnyConnection, table: str) -> MemoryTable:
    """Look the table up; `table` may carry a schema, else the search path decides.

    Raises:
        DatabaseRejected: the search path names no schema that exists.
    """
    wanted = ".".join(quoted(part) for part in table.split("."))
    with translated("looking up the table of memories"):
        row = await connection.fetchrow(_DESCRIBE, wanted, ACTIVE.name, STANDBY.name)
    assert row is not None  # noqa: S101  (the FROM clause always yields one row)
    given_schema, _, name = table.rpartition(".")
    schema = given_schema or row["schema"]
    if schema is None:
        raise DatabaseRejected("The search_path names no schema that exists.", "Set search_path for the role.")
    return MemoryTable(
        schema=schema,
        name=name,
        columns=json.loads(row["columns"]),
        vector_schema=row["vector_schema"],
        embedding_dimensions=row["dimensions"],
        standby_dimensions=row["standby_dimensions"],
    )
