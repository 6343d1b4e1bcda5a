"""What others have made under a name of ours is never taken for ours: it is named, and neither changed nor dropped."""

from collections.abc import Callable

import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.graph import enable
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.requirements.faults import messages, remedies
from memory_recall.schema.revisions import require_schema
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench

Requests = Callable[..., MigrationRequest]

_TABLE = (
    "CREATE TABLE memories (id bigint PRIMARY KEY, user_id text NOT NULL DEFAULT 'ana', content text,"
    " is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz, others halfvec(8),"
    " search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)"
)
_COLUMN = "ALTER TABLE memories RENAME embedding_standby TO theirs"
_TAKEN = {
    "embedding_standby, a text": ("ALTER TABLE memories ADD embedding_standby text DEFAULT 'theirs'", _COLUMN),
    "embedding_standby, vectors": ("ALTER TABLE memories ADD embedding_standby halfvec(8)", _COLUMN),
    "idx_memories_embedding": (
        "CREATE INDEX idx_memories_embedding ON memories USING hnsw (others halfvec_cosine_ops)",
        "ALTER INDEX idx_memories_embedding RENAME TO theirs",
    ),
    "idx_memories_embedding_pending": (
        "CREATE INDEX idx_memories_embedding_pending ON memories (user_id)",
        "ALTER INDEX idx_memories_embedding_pending RENAME TO theirs",
    ),
    "memory_graph": ("CREATE TABLE memory_graph (node text)", "ALTER TABLE memory_graph RENAME TO theirs"),
    "memory_concepts": ("CREATE TABLE memory_concepts (name text)", "ALTER TABLE memory_concepts RENAME TO theirs"),
}
_THEIRS = (
    "SELECT (SELECT count(*) FROM pg_class WHERE relname IN ('idx_memories_embedding', 'memory_graph')"
    " AND relnamespace = 'public'::regnamespace) + (SELECT count(embedding_standby) FROM memories)"
)


@pytest.mark.parametrize("taken", _TAKEN)
async def test_a_name_of_ours_that_others_have_is_refused_before_anything_is_changed(
    database: Database, request_for: Requests, taken: str
) -> None:
    made, renamed = _TAKEN[taken]
    async with database.connection() as connection:
        await connection.execute(f"{_TABLE}; {made}; INSERT INTO memories (id, content) VALUES (1, 'one')")
        with pytest.raises(SchemaUnsupported, match=taken.partition(",")[0]) as refused:
            await migrate(DsnText(database.dsn), request_for())
        facts = await inspect(connection, "memories")
        assert (messages(facts.faults), remedies(facts.faults)) == (refused.value.message, refused.value.remedy)
        assert facts.embedding_dimensions is None, "something was changed before"
        await connection.execute(renamed)
        await migrate(DsnText(database.dsn), request_for())
        assert (await inspect(connection, "memories")).schema_current


async def test_what_others_make_later_under_a_name_of_ours_outlives_builds_the_graph_and_the_removal(
    bench: Workbench, request_for: Requests
) -> None:
    source = DsnText(bench.database.dsn)
    await bench.insert("one")
    await bench.execute("CREATE INDEX idx_memories_embedding ON memories (user_id); CREATE TABLE memory_graph (n int)")
    with pytest.raises(SchemaUnsupported, match="idx_memories_embedding"):
        await build_index(source, "memories", IndexParameters())
    async with bench.database.connection() as connection:
        table = await require_schema(connection, "memories")
        with pytest.raises(SchemaUnsupported, match="memory_graph"):
            await enable(connection, table)
    await bench.execute("ALTER TABLE memories ADD embedding_standby text DEFAULT 'theirs'")
    await remove(source, request_for())
    assert await bench.value(_THEIRS) == 3
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'memory_index%' OR relname LIKE '%_failures'"
    assert await bench.value(left) == 0
