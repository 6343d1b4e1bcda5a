"""A partitioned table keeps the same rules in each of its partitions, also in those that are added later."""

from collections.abc import Callable
from dataclasses import replace

import asyncpg
import numpy as np
import pytest
from pgvector.asyncpg import register_vector

from memory_recall.errors import ExistingVectors, SchemaBehind, SchemaUnsupported
from memory_recall.graph import enable
from memory_recall.hnsw.repair import build_index
from memory_recall.indexing.queue_sql import PendingQueue, PendingRow, WorkerShare
from memory_recall.postgres.connection import DsnText, connect, create_pool
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.requirements.faults import messages
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.status import inspect
from memory_recall.transfer.import_jsonl import import_memories
from tests.integration.conftest import Database
from tests.integration.memory_recall.conftest import REPOSITORY
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.least_rights import least_rights
from tests.integration.memory_recall.partitioned import PARTITIONED_TABLE, USERS, fill_partitions, parts_of
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.workbench import DIMENSIONS, INDEX, Workbench, until

Requests = Callable[..., MigrationRequest]
DOCUMENT = REPOSITORY / "docs" / "database.md"


@pytest.fixture
def bench(partitioned_bench: Workbench) -> Workbench:
    return partitioned_bench


async def test_rules_that_are_off_in_one_partition_are_noticed_and_restored(
    bench: Workbench, request_for: Requests
) -> None:
    await bench.execute("ALTER TABLE memories_cleo DISABLE TRIGGER zz_memory_index_update")
    async with bench.database.connection() as connection:
        found = (await inspect(connection, "memories")).schema_differences
    assert found == "trigger zz_memory_index_update, in partition public.memories_cleo"
    with pytest.raises(SchemaBehind, match="memories_cleo"):
        await bench.backfill()
    await migrate(DsnText(bench.database.dsn), request_for())
    async with bench.database.connection() as connection:
        assert (await inspect(connection, "memories")).schema_differences == ""


async def test_records_of_a_deleted_row_go_with_it_even_where_the_statement_names_the_partition(
    bench: Workbench,
) -> None:
    """A trigger for statements would not run for such a statement."""
    await fill_partitions(bench, 2)
    await bench.execute(
        "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
        "SELECT id, memory_index_text_hash(content), 5, 'EmbedderRejected', 'infinity' FROM memories"
    )
    await bench.execute("DELETE FROM memories_ada")
    assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 6
    await bench.execute("DELETE FROM memories WHERE user_id = 'bob'")
    assert await bench.value("SELECT count(*) FROM memory_embedding_failures") == 4


async def test_writing_to_a_partition_wakes_the_worker_of_the_table(bench: Workbench) -> None:
    heard: list[object] = []
    async with bench.database.connection() as connection:
        await connection.add_listener("memory_index_pending", lambda *arguments: heard.append(arguments[-1]))
        await connection.execute("INSERT INTO memories_dan (content, user_id) VALUES ('new', 'dan')")
        await until(lambda: heard)
    assert heard == ["memories"]


async def test_a_partition_that_is_added_later_has_the_rules_and_the_index(
    bench: Workbench, request_for: Requests
) -> None:
    await fill_partitions(bench)
    await bench.backfill()
    source = DsnText(bench.database.dsn)
    await build_index(source, "memories", INDEX)
    await bench.execute("CREATE TABLE memories_eve PARTITION OF memories FOR VALUES IN ('eve')")
    await bench.execute("CREATE TABLE memories_fay (LIKE memories INCLUDING ALL)")
    await bench.execute("INSERT INTO memories_fay (content, user_id) VALUES ('of fay', 'fay')")
    await bench.execute("ALTER TABLE memories ATTACH PARTITION memories_fay FOR VALUES IN ('fay')")
    with pytest.raises(SchemaBehind, match=r"new partition public.memories_eve, new partition public.memories_fay"):
        await bench.backfill()
    await migrate(source, request_for())
    await bench.execute("INSERT INTO memories (content, user_id, is_sensitive) VALUES ('of eve', 'eve', true)")
    await bench.backfill()
    assert await bench.problems() == []
    assert len(await parts_of(bench, "idx_memories_embedding")) == 6
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert (facts.schema_differences, facts.index.valid) == ("", True)


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_worker_that_runs_already_stores_no_vector_in_a_new_partition(
    bench: Workbench, request_for: Requests, indexed: bool
) -> None:
    """It would make vectors of unknown origin of its own, which the next migration would refuse."""
    await fill_partitions(bench, 1)
    connection = await connect(DsnText(bench.database.dsn))
    await register_vector(connection)
    table = await require_schema(connection, "memories")
    queue = PendingQueue(table, (await active_model(connection, table)).id, indexed=indexed)
    await bench.execute("CREATE TABLE memories_eve PARTITION OF memories FOR VALUES IN ('eve')")
    await bench.execute("INSERT INTO memories (content, user_id) VALUES ('of eve', 'eve')")
    assert len((await queue.page(connection, 0, WorkerShare(), 100)).rows) == len(USERS)
    new = await bench.value("SELECT id FROM memories_eve")
    row = PendingRow(new, "of eve", await bench.value("SELECT memory_index_text_hash('of eve')"))
    vectors = np.stack([vector_of("of eve", DIMENSIONS)])
    assert (await queue.write(connection, [row], vectors)).stored == 0
    await migrate(DsnText(bench.database.dsn), request_for())
    assert len((await queue.page(connection, 0, WorkerShare(), 100)).rows) == len(USERS) + 1
    assert (await queue.write(connection, [row], vectors)).stored == 1
    connection.terminate()


@pytest.mark.parametrize("answer", ["keep", "discard"])
async def test_a_partition_that_comes_back_needs_a_decision_about_its_vectors(
    bench: Workbench, request_for: Requests, answer: str
) -> None:
    """While it was detached no rule applied, so its vectors may be of another model or of another text."""
    await fill_partitions(bench)
    await bench.backfill()
    source = DsnText(bench.database.dsn)
    await bench.execute("ALTER TABLE memories DETACH PARTITION memories_dan")
    await bench.execute("UPDATE memories_dan SET content = 'edited' WHERE id = (SELECT min(id) FROM memories_dan)")
    await bench.execute("ALTER TABLE memories ATTACH PARTITION memories_dan FOR VALUES IN ('dan')")
    async with bench.database.connection() as connection:
        found = (await inspect(connection, "memories")).schema_differences
    assert found == "new partition public.memories_dan"
    with pytest.raises(ExistingVectors, match="memories_dan"):
        await migrate(source, request_for())
    await migrate(source, request_for(existing_vectors=answer))
    await migrate(source, request_for())
    await bench.backfill()
    assert [problem for _, problem in await bench.problems()] == (["stale"] if answer == "keep" else [])


_REFUSED = {
    "is partitioned itself": "CREATE TABLE deep PARTITION OF memories FOR VALUES IN ('x') PARTITION BY LIST (user_id)",
    "no index that begins with id": "ALTER TABLE memories DROP CONSTRAINT memories_pkey",
}


async def test_an_id_that_two_partitions_have_is_refused(database: Database, request_for: Requests) -> None:
    async with database.connection() as connection:
        for statement in PARTITIONED_TABLE:
            await connection.execute(statement)
        for user in ("ada", "bob"):
            await connection.execute(f"INSERT INTO memories (id, content, user_id) VALUES (7, 'seven', '{user}')")
    with pytest.raises(SchemaUnsupported, match="have the id 7"):
        await migrate(DsnText(database.dsn), request_for())


async def test_partitions_that_have_been_adopted_are_not_read_again(bench: Workbench, request_for: Requests) -> None:
    await bench.execute(
        "INSERT INTO memories (content, user_id) SELECT 'text ' || n, (ARRAY['ada', 'bob', 'cleo', 'dan'])[1 + n % 4] "
        "FROM generate_series(1, 4000) n"
    )
    await bench.execute("ANALYZE memories")

    async def rows_read() -> int:
        """The rows that were read by scans of the table or of its indexes, as the server counts them."""
        await bench.execute("SELECT pg_stat_force_next_flush()")
        return int(
            await bench.value(
                "SELECT sum(seq_tup_read + coalesce(i.idx_tup_read, 0)) FROM pg_stat_user_tables t LEFT JOIN "
                "(SELECT relid, sum(idx_tup_read) AS idx_tup_read FROM pg_stat_user_indexes GROUP BY 1) i "
                "USING (relid) WHERE t.relname LIKE 'memories_%'"
            )
        )

    before = await rows_read()
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await rows_read() == before
    await bench.execute("CREATE TABLE memories_eve PARTITION OF memories FOR VALUES IN ('eve')")
    await migrate(DsnText(bench.database.dsn), request_for())
    assert await rows_read() - before < 100, "an empty partition has no ids to look for"


async def test_a_new_partition_with_an_id_of_another_is_refused_until_it_has_its_own(
    bench: Workbench, request_for: Requests
) -> None:
    await fill_partitions(bench, 1)
    await bench.execute("CREATE TABLE memories_eve PARTITION OF memories FOR VALUES IN ('eve')")
    await bench.execute("INSERT INTO memories (id, content, user_id) SELECT min(id), 'eve', 'eve' FROM memories")
    with pytest.raises(SchemaUnsupported, match="have the id"):
        await migrate(DsnText(bench.database.dsn), request_for())
    await bench.execute("UPDATE memories_eve SET id = 1 + (SELECT max(id) FROM memories)")
    await migrate(DsnText(bench.database.dsn), request_for())


@pytest.mark.finding("L5")
@pytest.mark.parametrize("problem", _REFUSED)
async def test_what_the_rules_or_indexes_would_not_reach_is_refused_with_the_remedy(
    bench: Workbench, request_for: Requests, problem: str
) -> None:
    await bench.execute(_REFUSED[problem])
    with pytest.raises(SchemaUnsupported, match=problem) as caught:
        await migrate(DsnText(bench.database.dsn), request_for())
    assert caught.value.remedy
    async with bench.database.connection() as connection:
        assert problem in messages((await inspect(connection, "memories")).faults)


async def test_a_foreign_partition_is_refused_by_name(bench: Workbench, request_for: Requests) -> None:
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing")
    await admin.execute("ALTER TABLE memories DROP CONSTRAINT memories_pkey")  # no unique key with foreign partitions
    await admin.execute("CREATE FOREIGN TABLE afar PARTITION OF memories FOR VALUES IN ('x') SERVER elsewhere")
    await admin.close()
    with pytest.raises(SchemaUnsupported, match=r"afar of .* is a foreign table"):
        await migrate(DsnText(bench.database.dsn), request_for())


async def test_a_half_detached_partition_is_refused_until_it_is_detached(
    bench: Workbench, request_for: Requests
) -> None:
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'memories_dan'::regclass")
    await admin.close()
    with pytest.raises(SchemaUnsupported, match=r"memories_dan of .* is half detached") as caught:
        await migrate(DsnText(bench.database.dsn), request_for())
    assert "FINALIZE" in caught.value.remedy
    await bench.execute("ALTER TABLE memories DETACH PARTITION memories_dan FINALIZE")
    await migrate(DsnText(bench.database.dsn), request_for())


async def test_roles_with_few_rights_backfill_and_recall(bench: Workbench) -> None:
    await fill_partitions(bench)
    await build_index(DsnText(bench.database.dsn), "memories", INDEX)
    async with least_rights(bench) as roles:
        await replace(bench, database=roles.worker).backfill()
        assert await bench.problems() == []
        pool = await create_pool(DsnText(roles.reader.dsn), max_size=2)
        recall = HybridRecall(pool, None)
        found = await recall.recall(make_query("text", user_id="bob", mode="lexical"))
        assert {memory.owner for memory in found.memories} == {"bob"}
        await recall.close()
        await pool.close()


async def test_a_concept_graph_of_a_partitioned_table_is_refused(bench: Workbench) -> None:
    connection = await connect(DsnText(bench.database.dsn))
    table = await require_schema(connection, "memories")
    with pytest.raises(SchemaUnsupported, match="no concept graph of a partitioned table"):
        await enable(connection, table)
    assert await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'memory_graph%'") == 0
    connection.terminate()


async def test_an_import_may_be_repeated_and_may_give_a_memory_to_another_user(bench: Workbench) -> None:
    lines = [b'{"id": 1, "content": "one", "user_id": "ada"}', b'{"id": 2, "content": "two", "user_id": "bob"}']
    moved = [lines[0], b'{"id": 2, "content": "two", "user_id": "cleo"}']
    results = []
    for file in (lines, lines, moved):
        async with bench.database.connection() as connection:
            result = await import_memories(connection, await describe(connection, "memories"), file)
        results.append((result.inserted, result.updated, result.unchanged))
    assert results == [(2, 0, 0), (0, 0, 2), (0, 1, 1)]
    assert await bench.value("SELECT string_agg(id || user_id, ',' ORDER BY id) FROM memories") == "1ada,2cleo"
