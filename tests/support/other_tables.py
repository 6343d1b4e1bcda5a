"""Tables of memories that other programs made, with all that a recall shows, filters or orders by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory_recall.schema.columns.names import ColumnNames

UUIDS = {"ana": "11111111-aaaa-4111-8111-111111111111", "bo": "22222222-2222-4222-8222-222222222222"}


@dataclass(frozen=True)
class OtherTable:
    """A table of another program.

    `create` is its definition and `columns` what it calls the columns that are used. `insert` adds a memory; its
    arguments are text, user, sensitive, deleted, category, tags, importance, time of creation (as text), and vector.
    `shown` is how answers show a text, which stands for `{}`. `texts` are the columns that can hold a text and are
    none of the fields that every answer has. The users ana and bo have the names `owners`.
    """

    name: str
    create: str
    columns: Mapping[str, str | list[str]]
    insert: str
    texts: frozenset[str]
    shown: str = "{}"
    owners: Mapping[str, str] | None = None

    @property
    def names(self) -> ColumnNames:
        return ColumnNames.parse(self.columns)

    def owner(self, person: str) -> str:
        return person if self.owners is None else self.owners[person]

    async def add(
        self,
        pool: Any,
        text: str,
        *,
        user: str = "ana",
        sensitive: bool = False,
        deleted: bool = False,
        category: str = "facts",
        tags: str = "",
        importance: float = 0.5,
        created_at: str = "2026-05-01T10:00:00+00:00",
        vector: list[float] | None = None,
    ) -> str:
        """Insert a memory of ana or bo, and return its id as recalls give it."""
        values = text, self.owner(user), sensitive, deleted, category, tags, importance, created_at, vector
        return str(await pool.fetchval(self.insert, *values))


NOTES = OtherTable(
    name="notes",
    create="""
        CREATE TABLE notes (
            "Note Id" uuid PRIMARY KEY DEFAULT gen_random_uuid(), body text, secret boolean NOT NULL DEFAULT false,
            "deletedAt" timestamp, "User Id" varchar(40), kind varchar(20), labels text, weight numeric, made timestamp,
            content text, user_id text, title text, parent uuid, extra jsonb, embedding vector(3),
            "W ords" tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED)
    """,
    columns={
        "id": "Note Id", "content": "body", "is_sensitive": "secret", "deleted_at": "deletedAt", "user_id": "User Id",
        "category": "kind", "tags": "labels", "importance": "weight", "created_at": "made", "search_vector": "W ords",
        "embedding": "memory_embedding",
    },
    insert="""
        INSERT INTO notes (body, content, title, user_id, extra, "User Id", secret, "deletedAt", kind, labels, weight,
                           made, parent, memory_embedding, embedding)
        VALUES ($1, $1, $1, $1, jsonb_build_object('text', $1::text), $2, $3, CASE WHEN $4 THEN now() END, $5, $6,
                $7::float8, ($8::text::timestamptz AT TIME ZONE 'UTC'), gen_random_uuid(), $9::real[]::halfvec,
                '[1, 2, 3]')
        RETURNING "Note Id"
    """,
    texts=frozenset({"content", "title", "user_id", "extra"}),
)  # fmt: skip
DOCUMENTS = OtherTable(
    name="documents",
    create="""
        CREATE TABLE documents (
            uid varchar(64) COLLATE "C" PRIMARY KEY, heading text, document text, confidential smallint,
            gone boolean NOT NULL DEFAULT false, tenant uuid, heading_kind text, terms text, score double precision,
            born timestamptz, search tsvector GENERATED ALWAYS AS (to_tsvector('english',
                coalesce(heading, '') || ' ' || coalesce(document, ''))) STORED)
    """,
    columns={
        "id": "uid", "content": ["heading", "document"], "is_sensitive": "confidential", "deleted_at": "gone",
        "user_id": "tenant", "category": "heading_kind", "tags": "terms", "importance": "score", "created_at": "born",
        "search_vector": "search",
    },
    insert="""
        INSERT INTO documents (uid, heading, document, tenant, confidential, gone, heading_kind, terms, score, born,
                               embedding)
        VALUES ('doc/' || (SELECT count(*) FROM documents) || '''"\\', 'Note', $1, $2::text::uuid, $3::bool::int, $4,
                $5, $6, $7, $8::text::timestamptz, $9::real[]::halfvec)
        RETURNING uid
    """,
    texts=frozenset({"heading", "document"}),
    shown="Note\n\n{}",
    owners=UUIDS,
)  # fmt: skip
PAYLOADS = OtherTable(  # as mem0 keeps memories
    name="mem0",
    create="""
        CREATE TABLE mem0 (
            id uuid PRIMARY KEY DEFAULT gen_random_uuid(), payload jsonb,
            words tsvector GENERATED ALWAYS AS (to_tsvector('english', payload ->> 'data')) STORED)
    """,
    columns={
        "content": "payload->>'data'", "is_sensitive": "payload->'access'->>'private'",
        "deleted_at": "payload->>'deleted_at'", "user_id": "payload->>'user_id'",
        "category": "payload->'metadata'->>'it''s kind'", "tags": "payload->>'tags'",
        "importance": "payload->>'importance'", "created_at": "payload->>'created_at'", "search_vector": "words",
    },
    insert="""
        INSERT INTO mem0 (payload, embedding)
        VALUES (jsonb_strip_nulls(jsonb_build_object('data', $1::text, 'user_id', $2::text, 'access',
                  jsonb_build_object('private', $3::bool), 'deleted_at', CASE WHEN $4 THEN now() END, 'metadata',
                  jsonb_build_object('it''s kind', $5::text), 'tags', $6::text, 'importance', $7::float8, 'created_at',
                  $8::text)), $9::real[]::halfvec)
        RETURNING id
    """,
    texts=frozenset({"payload"}),
)  # fmt: skip
OTHER_TABLES = (NOTES, DOCUMENTS, PAYLOADS)
