"""Migrations respect what is there already: the memory API's own table, columns, indexes and version table."""

from collections.abc import Callable

import pytest

from memory_recall.errors import (
    DimensionMismatch,
    ExistingVectors,
    InvalidConfiguration,
    ModelMismatch,
    SchemaUnsupported,
)
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import migrate_and_index

Requests = Callable[..., MigrationRequest]

API_TABLE = """
CREATE TABLE {name} (
    id serial PRIMARY KEY, content text NOT NULL, category varchar(50) DEFAULT 'facts', tags text DEFAULT '',
    expanded_keywords text DEFAULT '', importance real DEFAULT 0.5, user_id varchar(100) NOT NULL DEFAULT 'default',
    is_sensitive {sensitive}, vault_path text, encrypted_content bytea, deleted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
    search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED
);
CREATE TABLE IF NOT EXISTS alembic_version (version_num varchar(32) PRIMARY KEY);
INSERT INTO alembic_version VALUES ('006') ON CONFLICT DO NOTHING;
"""
SENSITIVE_TYPES = ("boolean DEFAULT false", "integer NOT NULL DEFAULT 0", "smallint DEFAULT 0")


async def _execute(database: Database, *statements: str) -> None:
    async with database.connection() as connection:
        for statement in statements:
            await connection.execute(statement)


async def test_texts_of_limited_length_obey_the_same_rules(database: Database, request_for: Requests) -> None:
    """Postgres prints the trigger's condition with a cast for such a column."""
    table = API_TABLE.format(name="memories", sensitive=SENSITIVE_TYPES[0])
    await _execute(database, table.replace("content text", "content varchar(4000)"))
    await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        await connection.execute("INSERT INTO memories (content, is_sensitive) VALUES ('old', false)")
        await connection.execute("UPDATE memories SET embedding = array_fill(0.5::real, ARRAY[8])::halfvec")
        await connection.execute("UPDATE memories SET content = 'new'")
        assert await connection.fetchval("SELECT embedding FROM memories") is None
    assert (await migrate(DsnText(database.dsn), request_for())).applied == []


@pytest.mark.parametrize("sensitive", SENSITIVE_TYPES)
async def test_the_apis_table_is_extended_and_otherwise_left_alone(
    database: Database, request_for: Requests, sensitive: str
) -> None:
    yes, no = ("true", "false") if sensitive.startswith("boolean") else ("1", "0")
    await _execute(
        database,
        API_TABLE.format(name="memories", sensitive=sensitive),
        f"INSERT INTO memories (content, is_sensitive) VALUES ('open', {no}), ('secret', {yes})",
    )
    await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert await connection.fetchval("SELECT version_num FROM alembic_version") == "006"
        assert facts.schema_revision == HEAD_REVISION
        assert (facts.rows.total, facts.rows.pending, facts.rows.sensitive) == (2, 1, 1)
        await connection.execute("UPDATE memories SET embedding = array_fill(0.5::real, ARRAY[8])::halfvec")
        assert await connection.fetchval("SELECT count(*) FROM memories WHERE embedding IS NOT NULL") == 1
        await connection.execute(f"UPDATE memories SET is_sensitive = {yes}")
        assert await connection.fetchval("SELECT count(*) FROM memories WHERE embedding IS NOT NULL") == 0


async def test_an_unknown_sensitivity_counts_as_sensitive(database: Database, request_for: Requests) -> None:
    await _execute(database, API_TABLE.format(name="memories", sensitive="boolean"))
    await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        await connection.execute("INSERT INTO memories (content, is_sensitive) VALUES ('who knows', NULL)")
        assert (await inspect(connection, "memories")).rows.sensitive == 1


async def test_vectors_of_sensitive_and_deleted_rows_are_cleared(database: Database, request_for: Requests) -> None:
    await _execute(
        database,
        API_TABLE.format(name="memories", sensitive="boolean DEFAULT false"),
        "ALTER TABLE memories ADD embedding halfvec(8)",
        "INSERT INTO memories (content, is_sensitive, deleted_at, embedding) "
        "SELECT 'text ' || n, n % 3 = 0, CASE WHEN n % 5 = 0 THEN now() END, array_fill(0.5::real, ARRAY[8])::halfvec "
        "FROM generate_series(1, 4500) n",
    )
    await migrate(DsnText(database.dsn), request_for(existing_vectors="keep"))
    async with database.connection() as connection:
        kept = await connection.fetchval("SELECT count(*) FROM memories WHERE embedding IS NOT NULL")
        wrong = await connection.fetchval(
            "SELECT count(*) FROM memories WHERE embedding IS NOT NULL AND (is_sensitive OR deleted_at IS NOT NULL)"
        )
        facts = await inspect(connection, "memories")
    assert wrong == 0
    assert kept == facts.rows.embedded == 2400


async def test_vectors_of_unknown_origin_need_a_decision(database: Database, request_for: Requests) -> None:
    await _execute(
        database,
        API_TABLE.format(name="memories", sensitive="boolean DEFAULT false"),
        "ALTER TABLE memories ADD embedding halfvec(8)",
        "INSERT INTO memories (content, embedding) VALUES ('x', array_fill(0.5::real, ARRAY[8])::halfvec)",
    )
    with pytest.raises(ExistingVectors, match="discard") as caught:
        await migrate(DsnText(database.dsn), request_for())
    assert caught.value.exit_code == 4
    await migrate(DsnText(database.dsn), request_for(existing_vectors="discard"))
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(embedding) FROM memories") == 0
        await connection.execute("UPDATE memories SET embedding = array_fill(0.5::real, ARRAY[8])::halfvec")
    await migrate(DsnText(database.dsn), request_for(existing_vectors="discard"))
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(embedding) FROM memories") == 1, "discarding happens once"


async def test_the_apis_own_index_serves_and_its_column_survives_removal(
    database: Database, request_for: Requests
) -> None:
    await _execute(
        database,
        API_TABLE.format(name="memories", sensitive="boolean DEFAULT false"),
        "ALTER TABLE memories ADD embedding halfvec(8)",
        "CREATE INDEX idx_memories_embedding_hnsw ON memories USING hnsw (embedding halfvec_cosine_ops)",
    )
    await migrate_and_index(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert facts.index.name == "idx_memories_embedding_hnsw"
        assert await connection.fetchval("SELECT to_regclass('idx_memories_embedding')") is None
    await remove(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert facts.embedding_dimensions == 8
    assert facts.index.valid


@pytest.mark.parametrize(
    ("prepare", "refusal", "remedy"),
    [
        ("ALTER TABLE memories ADD embedding halfvec(16)", DimensionMismatch, "16 dimensions"),
        ("ALTER TABLE memories ADD embedding vector(8)", SchemaUnsupported, "not halfvec"),
        ("ALTER TABLE memories DROP deleted_at", SchemaUnsupported, "deleted_at"),
        (
            "ALTER TABLE memories ALTER is_sensitive DROP DEFAULT, ALTER is_sensitive TYPE text",
            SchemaUnsupported,
            "text",
        ),
        ("ALTER TABLE memories ALTER id DROP DEFAULT, ALTER id TYPE double precision", SchemaUnsupported, "integer"),
    ],
)
async def test_what_only_a_person_can_decide_is_refused_before_anything_changes(
    database: Database, request_for: Requests, prepare: str, refusal: type[Exception], remedy: str
) -> None:
    await _execute(database, API_TABLE.format(name="memories", sensitive="boolean DEFAULT false"), prepare)
    with pytest.raises(refusal, match=remedy):
        await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT to_regclass('memory_index_state')") is None


@pytest.mark.parametrize("migrated", [False, True])
async def test_an_empty_column_of_other_dimensions_is_replaced_on_request(
    database: Database, request_for: Requests, migrated: bool
) -> None:
    """Whether it was there before us or is our own; as soon as it holds a vector it is refused and left as it is."""
    source, asked = DsnText(database.dsn), request_for(existing_vectors="discard")
    if migrated:
        await migrate(source, request_for(dimensions=16))
    else:
        await _execute(
            database,
            API_TABLE.format(name="memories", sensitive="boolean DEFAULT false"),
            "ALTER TABLE memories ADD embedding halfvec(16)",
        )
    with pytest.raises(DimensionMismatch):
        await migrate(source, request_for())
    await migrate(source, asked)
    await _execute(
        database,
        "INSERT INTO memories (content, embedding) VALUES ('x', array_fill(0.5::real, ARRAY[8])::halfvec)",
    )
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert facts.active_model is not None
    assert (facts.embedding_dimensions, facts.active_model.dimensions, facts.rows.embedded) == (8, 8, 1)
    assert facts.schema_differences == ""
    with pytest.raises(DimensionMismatch):
        await migrate(source, request_for(dimensions=16, existing_vectors="discard"))


async def test_a_table_in_another_schema_is_not_mistaken_for_ours(database: Database, request_for: Requests) -> None:
    await _execute(
        database,
        "CREATE SCHEMA other",
        "CREATE TABLE other.memories (id text, content text)",
    )
    await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT 'public.memories'::regclass::text") == "memories"
        facts = await inspect(connection, "memories")
    assert facts.schema_revision == HEAD_REVISION


async def test_a_table_named_with_its_schema_is_migrated_there(database: Database, request_for: Requests) -> None:
    await _execute(
        database, "CREATE SCHEMA notes", API_TABLE.format(name='notes."entries"', sensitive="boolean DEFAULT false")
    )
    await migrate_and_index(DsnText(database.dsn), request_for(table="notes.entries"))
    async with database.connection() as connection:
        facts = await inspect(connection, "notes.entries")
        assert facts.index.name == "idx_entries_embedding"
        assert await connection.fetchval("SELECT to_regclass('notes.memory_index_state')::text")
        assert await connection.fetchval("SELECT to_regclass('public.memories')") is None


async def test_pgvector_may_live_in_a_schema_outside_the_search_path(
    bare_database: Database, request_for: Requests
) -> None:
    import asyncpg

    admin = await asyncpg.connect(bare_database.superuser_dsn)
    await admin.execute("CREATE SCHEMA ext")
    await admin.execute("GRANT USAGE ON SCHEMA ext TO public")
    await admin.execute("CREATE EXTENSION vector SCHEMA ext")
    await admin.close()
    await migrate_and_index(DsnText(bare_database.dsn), request_for())
    async with bare_database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert (facts.extension_schema, facts.embedding_dimensions, facts.index.valid) == ("ext", 8, True)


async def test_another_model_is_refused_once_there_are_vectors(database: Database, request_for: Requests) -> None:
    source = DsnText(database.dsn)
    await migrate(source, request_for(model="first"))
    await migrate(source, request_for(model="second"))
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert facts.active_model is not None
        assert facts.active_model.name == "second"
        await connection.execute(
            "INSERT INTO memories (content, embedding) VALUES ('x', array_fill(0.5::real, ARRAY[8])::halfvec)"
        )
    with pytest.raises(ModelMismatch, match="second, not third"):
        await migrate(source, request_for(model="third"))
    with pytest.raises(DimensionMismatch):
        await migrate(source, request_for(model="second", dimensions=16))


async def test_a_database_that_does_not_exist_is_named_as_such(database: Database, request_for: Requests) -> None:
    with pytest.raises(InvalidConfiguration, match="does not exist"):
        await migrate(DsnText(database.dsn + "_nowhere"), request_for())
