"""Stores as other programs make them: the definitions of their tables, and how each writes a memory.

The shapes are those of mem0's store for pgvector, LangChain's, LlamaIndex', a table that Prisma has migrated, one of
Supabase's examples, plain tables of notes, and the first user's memories.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignStore:
    """A table of another program.

    `create` makes it. `write` adds a memory of the text `$1` and the owner `$2`, a uuid as text. `options` are those of
    `memory adopt` without which something would be undecided. `used` is what `memory adopt` finds, by our names, where
    it is not of our name, and `embedding` is the column of our vectors.
    """

    name: str
    table: str
    create: str
    write: str
    used: dict[str, str]
    options: tuple[str, ...] = ("--no-sensitive",)
    embedding: str = "embedding"

    @property
    def relation(self) -> str:
        """The table's name, quoted for SQL."""
        return ".".join(f'"{part}"' for part in self.table.split("."))


FOREIGN_STORES = (
    ForeignStore(
        "mem0",
        "mem0",
        "CREATE TABLE mem0 (id uuid PRIMARY KEY, vector vector(4), payload jsonb)",
        """
        INSERT INTO mem0 (id, vector, payload) VALUES (gen_random_uuid(), '[1,0,0,0]', jsonb_build_object(
            'data', $1::text, 'hash', md5($1::text), 'user_id', $2::text, 'created_at', '2026-03-01T10:00:00-07:00'))
        """,
        {
            "content": "payload->>'data'", "user_id": "payload->>'user_id'", "created_at": "payload->>'created_at'",
            "deleted_at": "",
        },
    ),
    ForeignStore(
        "LangChain",
        "langchain_pg_embedding",
        """
        CREATE TABLE langchain_pg_collection (uuid uuid PRIMARY KEY, name varchar NOT NULL UNIQUE, cmetadata json);
        CREATE TABLE langchain_pg_embedding (
            id varchar PRIMARY KEY, collection_id uuid REFERENCES langchain_pg_collection ON DELETE CASCADE,
            embedding vector, document varchar, cmetadata jsonb);
        CREATE INDEX ON langchain_pg_embedding USING gin (cmetadata jsonb_path_ops)
        """,
        """
        INSERT INTO langchain_pg_embedding (id, document, cmetadata)
        VALUES (gen_random_uuid(), $1, jsonb_build_object('user_id', $2::text))
        """,
        {"content": "document", "user_id": "cmetadata->>'user_id'", "deleted_at": ""},
        embedding="memory_embedding",
    ),
    ForeignStore(
        "LlamaIndex",
        "data_llamaindex",
        """
        CREATE TABLE data_llamaindex (
            id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ json, node_id varchar,
            embedding vector(384),
            text_search_tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED);
        CREATE INDEX ON data_llamaindex USING gin (text_search_tsv)
        """,
        """
        INSERT INTO data_llamaindex (text, metadata_, node_id)
        VALUES ($1, json_build_object('owner', $2::text, '_node_type', 'TextNode'), gen_random_uuid())
        """,
        {
            "content": "text", "user_id": "metadata_->>'owner'", "search_vector": "text_search_tsv", "deleted_at": "",
        },
        embedding="memory_embedding",
    ),
    ForeignStore(
        "Prisma",
        "Memory",
        """
        CREATE TABLE "User" (id text PRIMARY KEY);
        CREATE TABLE "Memory" (
            id text PRIMARY KEY, "userId" text NOT NULL, content text NOT NULL, "isPrivate" boolean NOT NULL
            DEFAULT false, "createdAt" timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP, "updatedAt" timestamp(3)
            NOT NULL, "deletedAt" timestamp(3))
        """,
        """
        INSERT INTO "Memory" (id, "userId", content, "updatedAt")
        VALUES ('c' || md5(random()::text), $2::text, $1, now())
        """,
        {
            "user_id": "userId", "is_sensitive": "isPrivate", "created_at": "createdAt", "updated_at": "updatedAt",
            "deleted_at": "deletedAt",
        },
        (),
    ),
    ForeignStore(
        "Supabase",
        "api.documents",
        """
        CREATE SCHEMA api;
        CREATE TABLE api.documents (
            id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, user_id uuid NOT NULL, body text NOT NULL,
            tags text[], archived boolean NOT NULL DEFAULT false, inserted_at timestamptz NOT NULL DEFAULT now(),
            fts tsvector GENERATED ALWAYS AS (to_tsvector('simple', body)) STORED)
        """,
        "INSERT INTO api.documents (user_id, body) VALUES ($2::text::uuid, $1)",
        {
            "content": "body", "deleted_at": "archived", "created_at": "inserted_at", "search_vector": "fts",
            "tags": "",
        },
    ),
    ForeignStore(
        "notes with a uuid",
        "plain_notes",
        """
        CREATE TABLE plain_notes (
            uuid uuid PRIMARY KEY DEFAULT gen_random_uuid(), title text, body text, created timestamptz)
        """,
        "INSERT INTO plain_notes (body, title) SELECT $1, 'A note' WHERE $2::text IS NOT NULL",
        {"id": "uuid", "content": "body", "created_at": "created", "deleted_at": ""},
    ),
    ForeignStore(
        "a key and a value",
        "facts",
        """
        CREATE TABLE facts (
            key text PRIMARY KEY, value text NOT NULL, owner varchar(40), secret boolean, deleted boolean)
        """,
        "INSERT INTO facts (key, value, owner, secret) VALUES (md5($1), $1, $2::text, false)",
        {
            "id": "key", "content": "value", "user_id": "owner", "is_sensitive": "secret", "deleted_at": "deleted",
        },
        (),
    ),
    ForeignStore(
        "the first user's memories",
        "memories",
        """
        CREATE TABLE memories (
            id serial PRIMARY KEY, user_id varchar(100) NOT NULL DEFAULT 'default', content text NOT NULL,
            category varchar(50) DEFAULT 'facts', tags text DEFAULT '', expanded_keywords text DEFAULT '',
            importance real DEFAULT 0.5, is_sensitive boolean NOT NULL DEFAULT false, vault_path text,
            encrypted_content bytea, created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(), deleted_at timestamptz,
            search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)
        """,
        "INSERT INTO memories (content, user_id) VALUES ($1, $2::text)",
        {},
        (),
    ),
)  # fmt: skip
