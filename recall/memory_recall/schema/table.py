"""The table of memories as found in the catalog, and the SQL expressions that depend on it.

The table may have been created by another program, so its form is read from the catalog: its schema (found once through
the session's search_path, and named in every later statement), the types of its columns, and the schema of pgvector's
types. What the columns are called was chosen when the table was migrated, and is read from our own table of state. No
other module spells a column of the user's: it asks a `MemoryRow` for the SQL of a value. All other modules use the
predicates defined here, so that "sensitive" has a single definition. An unknown sensitivity (NULL) counts as sensitive,
because a missing vector can still be computed later.

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
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from memory_recall.errors import DatabaseRejected, ExtensionMissing, SchemaUnsupported
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import KeyType
from memory_recall.schema.columns.names import OUR_NAMES, ColumnNames, ColumnSource, used_column
from memory_recall.schema.columns.text_search import (
    READ_CASE_FOLDING,
    WITHOUT_LANGUAGE,
    configuration_of,
    read_configurations,
)
from memory_recall.schema.columns.used import USED_COLUMNS, Generated
from memory_recall.schema.names import index_name, own_suffix
from memory_recall.schema.partitions import READ_PARTITIONS, TablePartition

NOTIFY_CHANNEL = "memory_index_pending"
GUARDED_WRITER = "memory_index.writer"
"""A setting of our writers' sessions, which name the model of what they write and change our own columns alone."""
GUARDED = "guarded"
WORDS = "memory_index_words"
"""The function that makes the words of a text for a search column of ours."""
ORDINARY_COLLATION = 'pg_catalog."default"'
"""The database's own collation, which a text needs where its column's may be one that regular expressions refuse."""
_PLAIN_NAME = re.compile("[a-z_][a-z0-9_]*")
_BYTES_PER_ROW = 500  # in a table of which Postgres has no estimate of rows yet; it may be several times as many


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """One of the two vector columns, whose name `MemoryTable.vector_name` gives.

    `purpose` is what the names of its indexes say. `role` is the column of `memory_index_state` that holds the id of
    this vector column's model. `failures` is the name of the table of recorded failures, and `constraint` that of the
    constraint on the column.
    """

    purpose: str
    role: Literal["active_model", "next_model"]
    failures: str
    constraint: str

    def pending_index(self, table: str) -> str:
        """Return the name of the partial index over pending rows, which lack a vector in this column."""
        return index_name(table, f"{self.purpose}_pending")


ACTIVE = VectorColumn("embedding", "active_model", "memory_embedding_failures", "memory_index_no_private_embedding")
STANDBY = VectorColumn("embedding_standby", "next_model", "memory_standby_failures", "memory_index_no_private_standby")

# The only statement that follows the search path of the role, so it names the schema of all that it calls.
_LOCATE = """
SELECT coalesce($2, (SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_class c
                       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                      WHERE c.oid = pg_catalog.to_regclass($1)::pg_catalog.oid),
                pg_catalog.current_schema()::pg_catalog.text) AS schema,
       pg_catalog.array_to_json(pg_catalog.current_schemas(true))::pg_catalog.text AS search_path
"""
_STATES = """
SELECT to_regclass(format('%I.%I', $1::text, 'memory_index_state')) IS NOT NULL AS plain,
       to_regclass(format('%I.%I', $1::text, 'memory_index_state' || $2::text)) IS NOT NULL AS suffixed
"""
_DESCRIBE = f"""
SELECT c.relkind::text AS kind,
       EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) AS has_children,
       (SELECT v.nspname FROM pg_extension e JOIN pg_namespace v ON v.oid = e.extnamespace WHERE e.extname = 'vector')
           AS vector_schema,
       (SELECT coalesce(jsonb_object_agg(a.attname, format_type(a.atttypid, NULL)), '{{}}')::text
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS catalog,
       (SELECT coalesce(jsonb_object_agg(a.attname, quote_ident(a.attname)), '{{}}')::text
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND quote_ident(a.attname) <> a.attname)
           AS quoted_names,
       (SELECT coalesce(jsonb_object_agg(a.attname, CASE a.attgenerated WHEN 's' THEN 'stored' ELSE 'virtual' END),
                        '{{}}')::text
          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped) AS generated,
       (SELECT coalesce(jsonb_agg(a.attname), '[]')::text FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attnotnull AND NOT a.attisdropped) AS not_null,
       (SELECT coalesce(jsonb_agg(a.attname), '[]')::text
          FROM pg_attribute a JOIN pg_collation l ON l.oid = a.attcollation
         WHERE a.attrelid = c.oid AND NOT a.attisdropped AND NOT l.collisdeterministic) AS nondeterministic,
       (SELECT a.atttypmod FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attname = $2 AND NOT a.attisdropped) AS dimensions,
       (SELECT a.atttypmod FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attname = $3 AND NOT a.attisdropped) AS standby_dimensions,
       EXISTS (SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $4
                WHERE x.indrelid = c.oid AND x.indkey[0] = a.attnum AND x.indpred IS NULL AND x.indisvalid)
           AS id_indexed,{read_configurations("$5", "$6::text", "$7::text::jsonb")},
       {READ_CASE_FOLDING} AS case_folding,
       {READ_PARTITIONS}
  FROM (VALUES (to_regclass($1))) wanted(oid) LEFT JOIN pg_class c ON c.oid = wanted.oid
"""


def quoted(identifier: str) -> str:
    """Return an identifier quoted for SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def quoted_if_needed(identifier: str) -> str:
    """Return an identifier as a person writes it in SQL: quoted unless it is made of small letters, digits and `_`."""
    return identifier if _PLAIN_NAME.fullmatch(identifier) else quoted(identifier)


@dataclass(frozen=True)
class MemoryTable:
    """The table of memories as the catalog describes it. The names of our own relations for it end in `suffix`.

    `catalog` has the type of every column under the user's name. `generated` and `not_null` are by these names, too,
    and `quoted_names` has how Postgres writes those that it quotes. `nondeterministic` are the columns whose collation
    can take texts for equal that differ. `names` says which column is used for what, and `text_search_configuration`
    which configuration made the words of the search column, quoted where needed. `case_folding` is the collation that
    folds the case of every script, or "" for the database's own; it is None where the database does not hold Unicode.
    """

    schema: str
    name: str
    catalog: dict[str, str]
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
    nondeterministic: Collection[str] = ()
    names: ColumnNames = OUR_NAMES
    quoted_names: Mapping[str, str] = field(default_factory=dict)
    text_search_configuration: str = WITHOUT_LANGUAGE
    case_folding: str | None = None

    @property
    def exists(self) -> bool:
        """Whether the table exists."""
        return bool(self.catalog)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The types of the used columns that the table has, by our names for them."""
        found = {}
        for used in USED_COLUMNS:
            sources = self.names.of(used.name)
            if sources and all(source.column in self.catalog for source in sources):
                found[used.name] = self._type(used.name, sources)
        return found

    def _type(self, name: str, sources: tuple[ColumnSource, ...]) -> str:
        """Return the type of a value with these sources; several sources together are a text."""
        if len(sources) > 1:
            return "text"
        at_path = used_column(name).at_path
        return at_path if sources[0].path and at_path is not None else self.catalog[sources[0].column]

    @property
    def has_words_of_others(self) -> bool:
        """Whether the words of the text are in a search column that is not one of ours."""
        return "search_vector" in self.columns and not self.names.has_own_search_column

    def words(self, text: str) -> str:
        """Return SQL for the words of a text, as the search column has them; `text` is SQL for the text."""
        if self.names.has_own_search_column:
            return f"{self.own(WORDS)}({text})"
        return f"to_tsvector({_printed(self.text_search_configuration)}::regconfig, {text})"

    @property
    def key(self) -> KeyType:
        """The type of the key by which memories are known."""
        return KeyType(self.columns.get("id", "bigint"))

    def read_for(self, *names: str) -> list[str]:
        """Return the user's columns, quoted for SQL, that hold the values of used columns which the table has."""
        sources = (source for name in names if name in self.columns for source in self.names.of(name))
        return list(dict.fromkeys(self.quoted_names.get(one.column) or quoted_if_needed(one.column) for one in sources))

    def row(self, alias: str = "") -> "MemoryRow":
        """Return the SQL of the values of a row; `alias` is its alias, such as `m` or `NEW`, or "" for none."""
        return MemoryRow(self, alias)

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
        owner = self.names.of("user_id")
        return len(owner) == 1 and not owner[0].path and self.partition_key == (owner[0].column,)

    def estimated_rows(self, *, largest_partition: bool = False) -> str:
        """Return an SQL expression for the number of rows by Postgres's last estimate, or by the size without one.

        There is no estimate after a logical restore, nor after an upgrade by pg_upgrade to 17 or older. That of a
        partitioned table itself is not kept up to date, so those of its partitions are added, or the largest of them is
        taken.
        """
        relation = self.qualified.replace("'", "''")
        rows = f"CASE WHEN p.reltuples > 0 THEN p.reltuples ELSE pg_relation_size(p.oid) / {_BYTES_PER_ROW} END"
        if not self.is_partitioned:
            return f"(SELECT ({rows})::float8 FROM pg_class p WHERE p.oid = to_regclass('{relation}')::oid)"
        combined = "max" if largest_partition else "sum"
        return (
            f"(SELECT coalesce({combined}({rows}), 0)::float8 FROM pg_inherits i "
            f"JOIN pg_class p ON p.oid = i.inhrelid WHERE i.inhparent = to_regclass('{relation}')::oid)"
        )

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
        if self.names.all_public:
            return "false"
        column = self.row(row).column("is_sensitive")
        if self.names.of("is_sensitive")[0].path:
            return f"({column} IS DISTINCT FROM 'false'::text)"
        if self.columns.get("is_sensitive", "boolean") == "boolean":
            return f"({column} IS NOT FALSE)"
        return f"({column} IS DISTINCT FROM 0)"

    def present(self, row: str = "") -> str:
        """Return an SQL expression, as Postgres prints it, for whether a row is not deleted."""
        if not self.names.of("deleted_at"):
            return "true"
        column = self.row(row).column("deleted_at")
        is_mark = self.columns.get("deleted_at") == "boolean"
        return f"({column} IS NOT TRUE)" if is_mark else f"({column} IS NULL)"

    def shareable(self, row: str = "") -> str:
        """Return an SQL expression, as Postgres prints it, for whether a row is neither sensitive nor deleted."""
        return f"((NOT {self.sensitive(row)}) AND {self.present(row)})"

    def vector_name(self, column: VectorColumn) -> str:
        """Return the name of a vector column in this table; it needs no quotes."""
        return self.names.embedding if column is ACTIVE else f"{self.names.embedding}_standby"

    def dimensions(self, column: VectorColumn) -> int | None:
        """Return the number of dimensions of a vector column; None if the table does not have it."""
        return self.embedding_dimensions if column is ACTIVE else self.standby_dimensions

    def pending(self, row: str = "", column: VectorColumn = ACTIVE) -> str:
        """Return an SQL expression for whether a row may have a vector and has none.

        The partial index over pending rows has the same expression as its condition.
        """
        return f"(({self.row(row).vector(column)} IS NULL) AND {self.shareable(row)})"

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


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The SQL of the values of one row of a table, as Postgres prints it. `alias` is the row's alias, or ""."""

    table: MemoryTable
    alias: str = ""

    def column(self, name: str) -> str:
        """Return SQL for the value of a used column, by our name for it. The table must have the column.

        A value at a path is NULL if it cannot be read as what it should be. A time there is in UTC if it names no zone:
        with a second zone it would not be valid.
        """
        parts = [self._value(source) for source in self.table.names.of(name)]
        joined = f"concat_ws(E'\\n\\n', {', '.join(parts)}) COLLATE {ORDINARY_COLLATION}"
        value = parts[0] if len(parts) == 1 else f"nullif({joined}, '')"
        at_path = used_column(name).at_path
        if at_path in {None, "text"} or not self.table.names.of(name)[0].path:
            return value
        readings = [f"({value} || ' UTC'::text)", value] if at_path == "timestamp with time zone" else [value]
        cases = (f"WHEN pg_input_is_valid({one}, '{at_path}') THEN {one}::{at_path}" for one in readings)
        return f"CASE {' '.join(cases)} END"

    def optional(self, name: str) -> str:
        """Return SQL for the value of a used column, or NULL if the table has no such column."""
        return self.column(name) if name in self.table.columns else "NULL"

    @property
    def id(self) -> str:
        """SQL for the row's key."""
        return self.column("id")

    @property
    def content(self) -> str:
        """SQL for the row's text, which may be NULL."""
        return self.text("content")

    def text(self, name: str) -> str:
        """Return SQL for a text of the row, whose column the table must have.

        A `varchar` is cast to `text`. Postgres has no functions of `varchar`, but others may have made some.
        """
        value = self.column(name)
        return f"({value})::text" if self.table.columns[name] == "character varying" else value

    @property
    def search_vector(self) -> str:
        """SQL for the row's search vector."""
        return self.column("search_vector")

    def vector(self, column: VectorColumn) -> str:
        """Return SQL for the value of a vector column of the row."""
        name = self.table.vector_name(column)
        return f"{self.alias}.{name}" if self.alias else name

    def differs(self, name: str, other: str) -> list[str]:
        """Return the comparisons, as Postgres prints them, of which one is true if the column differs from another row.

        There is one for each source of the column. `other` is the alias of the other row.
        """
        pairs = zip(self.compared(name), MemoryRow(self.table, other).compared(name), strict=True)
        return [f"({new} IS DISTINCT FROM {old})" for new, old in pairs]

    def compared(self, name: str) -> list[str]:
        """Return SQL for the value of each source of a column in a comparison in which every difference counts.

        It is written as Postgres prints it, which casts `varchar` to `text`. By a nondeterministic collation, texts
        could be equal that differ in their case or accents alone.
        """
        return [self._compared(source) for source in self.table.names.of(name)]

    def _compared(self, source: ColumnSource) -> str:
        value = self._value(source)
        if source.path:
            return value
        if self.table.catalog.get(source.column) == "character varying":
            value = f"({value})::text"
        return f'({value} COLLATE "C")' if source.column in self.table.nondeterministic else value

    def _value(self, source: ColumnSource) -> str:
        name = self.table.quoted_names.get(source.column) or quoted_if_needed(source.column)
        value = f"{self.alias}.{name}" if self.alias else name
        for at, key in enumerate(source.path, 1):
            arrow = "->>" if at == len(source.path) else "->"
            value = f"({value} {arrow} {_printed(key)}::text)"
        return value


def _printed(key: str) -> str:
    """Return a text as Postgres prints it in an expression."""
    doubled = key.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in key else f"'{doubled}'"


async def locate(connection: AnyConnection, table: str) -> tuple[str, str]:
    """Return schema and name of a table, which need not exist; if `table` names no schema, the search path decides.

    Raises:
        DatabaseRejected: the search path names no schema that exists.
    """
    schema, name, _ = await _located(connection, table)
    return schema, name


async def describe(connection: AnyConnection, table: str, names: ColumnNames | None = None) -> MemoryTable:
    """Look up the table in the catalog; if `table` names no schema, the search path decides.

    The names of its columns are those that were recorded when it was migrated. Before that they are `names`, or ours.

    Raises:
        DatabaseRejected: the search path names no schema that exists.
        InvalidConfiguration: a text search configuration was chosen that does not exist.
    """
    schema, name, search_path = await _located(connection, table)
    async with reading_catalog(connection, "looking up the table of memories"):
        suffix, recorded = await _recorded(connection, schema, name)
        known = recorded or names or OUR_NAMES
        key, words = (known.of(one)[0].column for one in ("id", "search_vector"))
        columns = known.embedding, f"{known.embedding}_standby", key, words
        configuration = known.text_search_configuration
        relation = f"{quoted(schema)}.{quoted(name)}"
        row = await connection.fetchrow(_DESCRIBE, relation, *columns, configuration, search_path)
    assert row is not None  # noqa: S101  (the FROM clause always yields one row)
    catalog = json.loads(row["catalog"])
    return MemoryTable(
        schema=schema,
        name=name,
        catalog=catalog,
        vector_schema=row["vector_schema"],
        embedding_dimensions=row["dimensions"],
        standby_dimensions=row["standby_dimensions"],
        suffix=suffix,
        kind=row["kind"] or "r",
        has_children=row["has_children"],
        partitions=TablePartition.all_from_json(row["partitions"]),
        partition_key=tuple(json.loads(row["partition_key"])),
        id_indexed=row["id_indexed"],
        generated=json.loads(row["generated"]),
        not_null=json.loads(row["not_null"]),
        nondeterministic=json.loads(row["nondeterministic"]),
        names=known.for_table(catalog) if catalog and recorded is None else known,
        quoted_names=json.loads(row["quoted_names"]),
        text_search_configuration=configuration_of(row["words_of_column"], configuration, row["words_as_chosen"]),
        case_folding=row["case_folding"],
    )


async def _located(connection: AnyConnection, table: str) -> tuple[str, str, str]:
    """Return schema and name of a table, and the search path as JSON."""
    wanted = ".".join(quoted(part) for part in table.split("."))
    given_schema, _, name = table.rpartition(".")
    with translated("looking up the table of memories"):
        place = await connection.fetchrow(_LOCATE, wanted, given_schema or None)
    assert place is not None  # noqa: S101  (a SELECT without FROM yields one row)
    schema = place["schema"]
    if schema is None:
        raise DatabaseRejected("The search_path names no schema that exists.", "Set search_path for the role.")
    return schema, name, place["search_path"]


async def _recorded(connection: AnyConnection, schema: str, name: str) -> tuple[str, ColumnNames | None]:
    """Return the suffix of our own relations for a table, and the names of its columns if they are recorded."""
    suffix = own_suffix(name)
    there = await connection.fetchrow(_STATES, schema, suffix)
    assert there is not None  # noqa: S101  (a SELECT without FROM yields one row)
    suffixed: bool = there["suffixed"]
    if not there["plain"] and not suffixed:
        return "", None
    state = f"{quoted(schema)}.{quoted('memory_index_state' + (suffix if suffixed else ''))}"
    row = await connection.fetchrow(f"SELECT table_name, column_names::text FROM {state}")
    if not suffixed and row is not None and row["table_name"] != name:
        return suffix, None
    return suffix if suffixed else "", None if row is None else ColumnNames.from_json(row["column_names"])
