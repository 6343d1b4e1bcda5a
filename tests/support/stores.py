"""Tables that other programs have made: their names, keys and documents, as the tests adopt them."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.table import quoted

_BOTH = "coalesce(title, '') || ' ' || coalesce(body, '')"
_WORDS = "to_tsvector('english', {})"


@dataclass(frozen=True)
class Store:
    """A table of another program: the statements that make it, and what its columns are for.

    `insert` adds one memory of the text `$1` to the owner `$2`, which is sensitive where `$3` is true, and returns its
    id; `edit` gives the memory of the id `$1` the text `$2`; `hide` makes the memory of the id `$1` sensitive, and
    `delete` marks it as deleted. They are None where the store has no such thing.
    """

    name: str
    table: str
    create: str
    columns: MappingProxyType[str, Any]
    insert: str
    edit: str
    hide: str | None = None
    delete: str | None = None
    all_public: bool = False

    @property
    def relation(self) -> str:
        """The table's full name, quoted for SQL."""
        return ".".join(quoted(part) for part in self.table.split("."))

    @property
    def names(self) -> ColumnNames:
        """The names of the columns."""
        return ColumnNames.parse(dict(self.columns), all_public=self.all_public)


STORES = (
    Store(
        "other names and a uuid",
        "app.Team notes",
        f"""
        CREATE SCHEMA app;
        CREATE TABLE app."Team notes" (
            uuid uuid PRIMARY KEY DEFAULT gen_random_uuid(), body varchar(4000), "User Id" integer,
            "isSecret" boolean NOT NULL DEFAULT false, "deletedAt" timestamptz, "order" real,
            "createdAt" timestamptz NOT NULL DEFAULT now(),
            words tsvector GENERATED ALWAYS AS ({_WORDS.format("coalesce(body, '')")}) STORED
        );
        CREATE INDEX ON app."Team notes" USING gin (words)""",
        MappingProxyType({
            "id": "uuid", "content": "body", "user_id": "User Id", "is_sensitive": "isSecret",
            "deleted_at": "deletedAt", "importance": "order", "created_at": "createdAt", "search_vector": "words",
        }),
        """
        INSERT INTO app."Team notes" (body, "User Id", "isSecret") VALUES ($1, $2::text::integer, $3)
        RETURNING uuid::text
        """,
        'UPDATE app."Team notes" SET body = $2 WHERE uuid = $1::text::uuid',
        """UPDATE app."Team notes" SET "isSecret" = true WHERE uuid = $1::text::uuid""",
        """UPDATE app."Team notes" SET "deletedAt" = now() WHERE uuid = $1::text::uuid""",
    ),
    Store(
        "documents",
        "mem0",
        f"""
        CREATE TABLE mem0 (
            id uuid PRIMARY KEY DEFAULT gen_random_uuid(), embedding vector(1536), payload jsonb,
            words tsvector GENERATED ALWAYS AS ({_WORDS.format("coalesce(payload->>'data', '')")}) STORED
        );
        CREATE INDEX ON mem0 USING gin (words)""",
        MappingProxyType({
            "content": "payload->>'data'", "user_id": "payload->>'user_id'", "is_sensitive": "payload->>'secret'",
            "deleted_at": "payload->'times'->>'deleted'", "created_at": "payload->>'created_at'",
            "search_vector": "words", "tags": "", "embedding": "memory_embedding",
        }),
        """
        INSERT INTO mem0 (payload) VALUES (jsonb_build_object('data', $1::text, 'user_id', $2::text,
            'secret', $3::boolean, 'created_at', '2026-03-01T10:00:00Z')) RETURNING id::text""",
        "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb($2::text)) WHERE id = $1::text::uuid",
        "UPDATE mem0 SET payload = payload - 'secret' WHERE id = $1::text::uuid",
        """UPDATE mem0 SET payload = payload || '{"times": {"deleted": "2026-03-02"}}' WHERE id = $1::text::uuid""",
    ),
    Store(
        "a text key and two texts",
        "articles",
        f"""
        CREATE TABLE articles (
            slug varchar(80) UNIQUE NOT NULL DEFAULT md5(random()::text), title text, body text, removed boolean,
            words tsvector GENERATED ALWAYS AS ({_WORDS.format(_BOTH)}) STORED
        );
        CREATE INDEX ON articles USING gin (words)""",
        MappingProxyType({
            "id": "slug", "content": ["title", "body"], "deleted_at": "removed", "search_vector": "words",
        }),
        "INSERT INTO articles (title, body) "
        "SELECT 'A title', $1 WHERE ($2::text, $3::boolean) IS NOT NULL RETURNING slug",
        "UPDATE articles SET title = $2, body = NULL WHERE slug = $1",
        None,
        "UPDATE articles SET removed = true WHERE slug = $1",
        all_public=True,
    ),
    Store(
        "nothing but a key and a text",
        "pages",
        "CREATE TABLE pages (id smallint GENERATED ALWAYS AS IDENTITY UNIQUE, content text)",
        MappingProxyType({"deleted_at": ""}),
        "INSERT INTO pages (content) SELECT $1 WHERE ($2::text, $3::boolean) IS NOT NULL RETURNING id",
        "UPDATE pages SET content = $2 WHERE id = $1",
        all_public=True,
    ),
)  # fmt: skip
"""Stores of every kind of key, name and source."""
