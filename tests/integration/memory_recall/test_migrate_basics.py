"""Migrations end where they should, from an empty database and again from where they ended."""

from collections.abc import Callable
from unittest.mock import AsyncMock

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from memory_recall.errors import ExtensionMissing
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.schema import migrate as migrating
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.status import inspect
from tests.integration.conftest import Database

Requests = Callable[..., MigrationRequest]


class KilledError(Exception):
    """Ends a migration where it stands."""


_OBJECTS = """
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
    SELECT format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                  a.attstattarget) AS line
      FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT format('index %s valid=%s', pg_get_indexdef(i.indexrelid), i.indisvalid)
      FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid))
      FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT format('trigger %s enabled=%s', pg_get_triggerdef(oid), tgenabled) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL
    SELECT format('function %s %s', oid::regprocedure, regexp_replace(prosrc, '[0-9a-f]{64}', 'key', 'g')) FROM pg_proc
     WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'memory%'
) objects
"""

_OF_WORDS = "FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'search_vector'"
_TARGET = f"SELECT coalesce(nullif(attstattarget, -1)::text, 'default') {_OF_WORDS}"
_KNOWN_WORDS = "SELECT cardinality(most_common_elem_freqs) FROM pg_stats WHERE attname = 'search_vector'"
_TWO_THOUSAND_WORDS = """
INSERT INTO memories (content)
SELECT (SELECT string_agg('w' || (n * 7 + word) % 2000, ' ') FROM generate_series(1, 100) word)
  FROM generate_series(1, 600) n
"""


async def _objects(database: Database) -> str:
    async with database.connection() as connection:
        found: str = await connection.fetchval(_OBJECTS)
    return found


async def test_an_empty_database_reaches_head_and_stays_there(database: Database, request_for: Requests) -> None:
    result = await migrate(DsnText(database.dsn), request_for())
    assert (result.revision, result.applied) == (HEAD_REVISION, ["0001", HEAD_REVISION])
    before = await _objects(database)
    again = await migrate(DsnText(database.dsn), request_for())
    assert again.applied == []
    assert await _objects(database) == before


async def test_the_schema_is_at_its_last_revision_at_any_stage_of_the_vector_index(
    database: Database, request_for: Requests
) -> None:
    """The index is no revision: neither its absence, nor its build, nor its loss calls for a migration."""
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    assert "hnsw" not in await _objects(database)
    async with database.connection() as connection:
        await build_index(source, "memories", IndexParameters())
        assert (await migrate(source, request_for())).applied == []
        await connection.execute("DROP INDEX idx_memories_embedding")
        assert (await migrate(source, request_for())).applied == []
    assert "hnsw" not in await _objects(database)


def test_the_last_revision_is_the_one_that_the_library_names(request_for: Requests) -> None:
    """Reading where a table stands must not need Alembic, so the library names the last revision itself."""
    config = Config()
    config.set_main_option("script_location", str(request_for().migrations))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD_REVISION


async def test_up_down_up_ends_with_the_same_objects_and_keeps_the_rows(
    database: Database, request_for: Requests
) -> None:
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    before = await _objects(database)
    async with database.connection() as connection:
        await connection.execute("INSERT INTO memories (content) VALUES ('kept')")
    await remove(source, request_for())
    without = await _objects(database)
    assert "memory_index" not in without
    assert "embedding" not in without
    await migrate(source, request_for())
    assert await _objects(database) == before
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT content FROM memories") == "kept"


async def test_without_the_extension_only_the_table_of_memories_is_created(
    bare_database: Database, request_for: Requests
) -> None:
    source = DsnText(bare_database.dsn)
    with pytest.raises(ExtensionMissing) as caught:
        await migrate(source, request_for())
    assert caught.value.exit_code == 3
    async with bare_database.connection() as connection:
        assert (await inspect(connection, "memories")).schema_revision is None
        await connection.execute("INSERT INTO memories (content) VALUES ('works without vectors')")
    with pytest.raises(ExtensionMissing):
        await migrate(source, request_for())
    assert "memory_index_state" not in await _objects(bare_database)
    await bare_database.create_extension()
    assert (await migrate(source, request_for())).applied == ["0001", HEAD_REVISION]


async def test_a_database_whose_extension_was_dropped_is_migrated_again(
    database: Database, request_for: Requests
) -> None:
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    before = await _objects(database)
    async with database.connection() as owner:
        await owner.execute("INSERT INTO memories (content) VALUES ('survives')")
    await _as_superuser(database, "DROP EXTENSION vector CASCADE")
    with pytest.raises(ExtensionMissing):
        await migrate(source, request_for())
    await database.create_extension()
    result = await migrate(source, request_for())
    assert result.revision == HEAD_REVISION
    assert sorted(await _objects(database)) == sorted(before)


@pytest.mark.parametrize("killed", [False, True])
async def test_recorded_hashes_fit_their_texts_after_the_revisions_were_run_again(
    database: Database, request_for: Requests, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """The key stays, so what was applied stays applied, also if a migration is killed half-way."""
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    hashed = "memory_index_text_hash(content)"
    async with database.connection() as owner:
        await owner.execute("INSERT INTO memories (content) VALUES ('one'), ('two')")
        await owner.execute(
            "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) "
            "VALUES (1, 'UPDATE', 1, 2, memory_index_text_hash('one'), memory_index_text_hash('two'))"
        )
        await owner.execute(
            "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
            f"SELECT id, {hashed}, 5, 'EmbedderRejected', 'infinity' FROM memories"
        )
        before = await owner.fetchval("SELECT memory_index_text_hash('one')")
    await _as_superuser(database, "DROP EXTENSION vector CASCADE")
    await database.create_extension()
    if killed:
        with monkeypatch.context() as patched:
            patched.setattr(migrating, "restore", AsyncMock(side_effect=KilledError))
            with pytest.raises(KilledError):
                await migrate(source, request_for())
    await migrate(source, request_for())
    async with database.connection() as owner:
        assert await owner.fetchval("SELECT memory_index_text_hash('one')") == before
        assert await owner.fetchval("SELECT undone_at IS NULL AND text_hash <> '' FROM memory_supersessions")
        assert await owner.fetchval("SELECT count(*) FROM memory_embedding_failures") == 2


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TRIGGER zz_memory_index_update ON memories",
        "DROP TRIGGER zz_memory_index_truncate ON memories",
        "ALTER TABLE memories DISABLE TRIGGER zz_memory_index_insert",
        "ALTER TABLE memories DROP CONSTRAINT memory_index_no_private_embedding",
        "DROP INDEX idx_memories_embedding_pending",
    ],
)
async def test_missing_rules_are_restored(database: Database, request_for: Requests, damage: str) -> None:
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    before = await _objects(database)
    async with database.connection() as connection:
        await connection.execute(damage)
    assert await _objects(database) != before
    await migrate(source, request_for())
    assert await _objects(database) == before


@pytest.mark.parametrize(("own", "kept"), [(None, "300"), (50, "50")])
async def test_the_statistics_target_is_raised_unless_somebody_has_set_one(
    database: Database, request_for: Requests, own: int | None, kept: str
) -> None:
    """The target is raised, the table is analysed at once, and removal resets the target; one set by a person stays."""
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    await remove(source, request_for())
    async with database.connection() as connection:
        await connection.execute(_TWO_THOUSAND_WORDS)
        if own is not None:
            await connection.execute(f"ALTER TABLE memories ALTER COLUMN search_vector SET STATISTICS {own}")
        await migrate(source, request_for())
        assert await connection.fetchval(_TARGET) == kept
        if own is None:
            assert await connection.fetchval(_KNOWN_WORDS) > 2_000, "the default keeps a thousand"
        await remove(source, request_for())
        assert await connection.fetchval(_TARGET) == ("default" if own is None else kept)


async def _as_superuser(database: Database, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
