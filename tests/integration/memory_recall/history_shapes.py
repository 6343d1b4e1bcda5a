"""The forms of the table over which random histories are played: our names, and those of other programs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from memory_recall.schema.columns.names import OUR_NAMES, ColumnNames

_DOCUMENT = {
    "content": "data", "is_sensitive": "secret", "deleted_at": "deleted", "user_id": "user_id", "category": "kind",
    "tags": "labels",
}  # fmt: skip
_ROW = ("id", "user_id", "content", "category", "tags", "is_sensitive", "deleted_at", "embedding")


@dataclass(frozen=True)
class Shape:
    """A table of memories: its names, the id that it has for a number, and whether a document holds the values."""

    table: str = "memories"
    create: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    key: Callable[[int], object] = int
    columns: ColumnNames = OUR_NAMES
    in_document: bool = False

    def name(self, column: str) -> str:
        """Return SQL for the column, quoted where it is needed."""
        if self.in_document and column in _DOCUMENT:
            return f"(payload->>'{_DOCUMENT[column]}')"
        return self.names.get(column, column)

    def sets(self, **values: str) -> str:
        """Return the assignments of an UPDATE that give each column the SQL of its value."""
        if not self.in_document:
            return ", ".join(f"{self.name(column)} = {value}" for column, value in values.items())
        plain = [f"{self.name(column)} = {value}" for column, value in values.items() if column not in _DOCUMENT]
        changed = {column: value for column, value in values.items() if column in _DOCUMENT}
        if changed:
            plain.append(f"payload = {self.table}.payload || {self._document(changed)}")
        return ", ".join(plain)

    def insert(self, **values: str) -> str:
        """Return an INSERT that gives each column the SQL of its value."""
        plain = {column: value for column, value in values.items() if not (self.in_document and column in _DOCUMENT)}
        names, given = [self.name(column) for column in plain], list(plain.values())
        if self.in_document:
            names.append("payload")
            given.append(self._document({column: value for column, value in values.items() if column in _DOCUMENT}))
        return f"INSERT INTO {self.table} ({', '.join(names)}) VALUES ({', '.join(given)})"

    def own(self, name: str) -> str:
        """Return the full name of a relation or function of ours for this table, which is the first of its schema."""
        return f"{self.table.rpartition('.')[0] or 'public'}.{name}"

    @property
    def plain_name(self) -> str:
        """The table's name without quotes, as settings have it."""
        return self.table.replace('"', "")

    @property
    def rows(self) -> str:
        """A SELECT of the rows under our names."""
        shown = {"is_sensitive": self.sensitive}
        return f"SELECT {', '.join(f'{shown.get(one, self.name(one))} AS {one}' for one in _ROW)} FROM {self.table}"

    @property
    def sensitive(self) -> str:
        """SQL for whether a row is sensitive."""
        name = self.name("is_sensitive")
        return f"({name} IS DISTINCT FROM 'false')" if self.in_document else name

    @staticmethod
    def _document(values: Mapping[str, str]) -> str:
        parts = ", ".join(f"'{_DOCUMENT[column]}', {value}" for column, value in values.items())
        return f"jsonb_build_object({parts})"


OURS = Shape()
WITH_UUIDS = Shape(
    'app."Team notes"',
    """
    CREATE SCHEMA app;
    CREATE TABLE app."Team notes" ("Key" uuid PRIMARY KEY, body varchar(200), "isSecret" boolean NOT NULL DEFAULT false,
        "deletedAt" timestamptz, "User Id" text, weight real, kind text, "Labels" text)""",
    {
        "id": '"Key"', "content": "body", "is_sensitive": '"isSecret"', "deleted_at": '"deletedAt"',
        "user_id": '"User Id"', "importance": "weight", "category": "kind", "tags": '"Labels"',
    },
    lambda number: str(UUID(int=number)),
    ColumnNames.parse({
        "id": "Key", "content": "body", "is_sensitive": "isSecret", "deleted_at": "deletedAt", "user_id": "User Id",
        "importance": "weight", "category": "kind", "tags": "Labels",
    }),
)  # fmt: skip
WITH_TEXT_KEYS = Shape(
    "articles",
    """
    CREATE TABLE articles (slug varchar(20) PRIMARY KEY, content text, is_sensitive boolean NOT NULL DEFAULT false,
        removed timestamp, user_id text, importance real, category varchar(20), tags text)""",
    {"id": "slug", "deleted_at": "removed"},
    lambda number: f"no {number}",
    ColumnNames.parse({"id": "slug", "deleted_at": "removed"}),
)
WITH_DOCUMENTS = Shape(
    "documents",
    "CREATE TABLE documents (id uuid PRIMARY KEY, payload jsonb, importance real, embedding vector(3))",
    {"embedding": "memory_embedding"},
    lambda number: str(UUID(int=number)),
    ColumnNames.parse({
        **{column: f"payload->>'{key}'" for column, key in _DOCUMENT.items()}, "embedding": "memory_embedding",
    }),
    in_document=True,
)  # fmt: skip
OTHERS: Mapping[str, Shape] = {"uuids": WITH_UUIDS, "text keys": WITH_TEXT_KEYS, "documents": WITH_DOCUMENTS}
