"""Each partition has an index of its own, built one after another without making anybody wait."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from memory_recall.hnsw.definition import IndexFacts
from memory_recall.hnsw.repair import IndexParameters, build_index, check_and_repair
from memory_recall.postgres.connection import Connection, DsnText, connect
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.revisions import require_schema
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.conftest import REPOSITORY
from tests.integration.memory_recall.partitioned import USERS, fill_partitions, parts_of
from tests.integration.memory_recall.workbench import INDEX, Workbench, until

Requests = Callable[..., MigrationRequest]
DOCUMENT = REPOSITORY / "docs" / "database.md"


@pytest.fixture
def bench(partitioned_bench: Workbench) -> Workbench:
    return partitioned_bench


async def test_every_partition_gets_the_rules_and_its_part_of_each_index(
    bench: Workbench, request_for: Requests
) -> None:
    await fill_partitions(bench)
    await bench.backfill()
    assert await bench.problems() == []
    await build_index(DsnText(bench.database.dsn), "memories", INDEX)
    for index in ("idx_memories_embedding", "idx_memories_embedding_pending", "idx_memories_embedding_withheld"):
        parts = await parts_of(bench, index)
        assert [part["partition"] for part in parts] == [f"memories_{user}" for user in USERS]
        assert all(part["valid"] for part in parts)
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert (facts.schema_differences, facts.index.valid, facts.index.ours) == ("", True, True)
        assert (facts.index.m, facts.index.ef_construction) == (INDEX.m, INDEX.ef_construction)
        assert (facts.rows.total, facts.rows.embedded) == (40, 40)
    await remove(DsnText(bench.database.dsn), request_for())
    async with bench.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'zz_memory%'") == 0
        assert await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'idx_%embedding%'") == 0


@pytest.mark.parametrize(
    ("statement", "indexed"),
    [("ON ONLY", False), ('"memories_ada" USING hnsw', False), ("ATTACH PARTITION", False), ("RENAME TO", True)],
    ids=["the empty index", "a part", "the attaching", "the exchange"],
)
async def test_building_and_exchanging_indexes_makes_no_writer_wait(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, statement: str, indexed: bool
) -> None:
    """Each statement waits for the end of a slow transaction, and a writer that had to wait behind it would fail."""
    await fill_partitions(bench)
    await bench.backfill()
    source = DsnText(bench.database.dsn)
    if indexed:
        await build_index(source, "memories", IndexParameters(8, 32))
    written = 0

    async def write(writer: Connection, building: asyncio.Task[IndexFacts]) -> None:
        nonlocal written
        await writer.execute("SET lock_timeout = '5s'")
        while not building.done():
            await writer.execute("INSERT INTO memories (content, user_id) VALUES ('quick', 'bob')")
            await writer.execute("INSERT INTO memories (content, user_id) VALUES ('quick', 'ada')")
            written += 1

    async with bench.database.connection() as slow, bench.database.connection() as writer:
        begun = begin_before(monkeypatch, statement, slow)
        building = asyncio.create_task(build_index(source, "memories", INDEX))
        await until(lambda: begun or building.done())
        assert begun == [statement]
        writing = asyncio.create_task(write(writer, building))
        await bench.until_value(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'memory-migrate' AND "
            f"datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%{statement}%'",
            lambda waiting: waiting or writing.done(),
        )
        seen = written
        await until(lambda: written >= seen + 50 or writing.done())
        assert not building.done(), "it waited for nobody"
        await slow.execute("COMMIT")
        assert (await building).valid
        await writing


def begin_before(monkeypatch: pytest.MonkeyPatch, part: str, slow: Connection) -> list[str]:
    """Have `slow` begin a transaction that writes, just before the first statement with `part`; then say so."""
    begun: list[str] = []
    execute = asyncpg.Connection.execute

    async def watched(connection: Connection, statement: str, *arguments: object, **options: Any) -> str:
        if part in statement and not begun:
            begun.append(part)
            await execute(slow, "BEGIN; UPDATE memories SET importance = 0.4 WHERE user_id = 'ada'")
        return str(await execute(connection, statement, *arguments, **options))

    monkeypatch.setattr(asyncpg.Connection, "execute", watched)
    return begun


async def test_an_interrupted_build_is_reported_and_goes_on_where_it_stopped(bench: Workbench) -> None:
    """One part is attached, one was built and not attached, one is invalid: the first two are not built again."""
    await fill_partitions(bench)
    await bench.backfill()
    how = f"USING hnsw (embedding halfvec_cosine_ops) WITH (m = {INDEX.m}, ef_construction = {INDEX.ef_construction})"
    await bench.execute(f"CREATE INDEX idx_memories_embedding ON ONLY memories {how}")
    for user in ("ada", "bob", "cleo"):
        await bench.execute(f"CREATE INDEX idx_memories_{user}_embedding ON memories_{user} {how}")
    await bench.execute("ALTER INDEX idx_memories_embedding ATTACH PARTITION idx_memories_ada_embedding")
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idx_memories_cleo_embedding'::regclass"
    )
    await admin.close()
    before = {user: await bench.value(f"SELECT 'idx_memories_{user}_embedding'::regclass::oid") for user in USERS[:3]}
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert (facts.index.exists, facts.index.valid) == (True, False)
    assert (await build_index(DsnText(bench.database.dsn), "memories", INDEX)).valid
    after = {user: await bench.value(f"SELECT 'idx_memories_{user}_embedding'::regclass::oid") for user in USERS[:3]}
    assert [after[user] == before[user] for user in USERS[:3]] == [True, True, False]


@pytest.mark.parametrize("complete", [True, False])
async def test_an_index_of_other_parameters_is_replaced_in_every_partition(bench: Workbench, complete: bool) -> None:
    await fill_partitions(bench)
    await bench.backfill()
    source = DsnText(bench.database.dsn)
    if complete:
        await build_index(source, "memories", IndexParameters(8, 32))
    else:
        await bench.execute(
            "CREATE INDEX idx_memories_embedding ON ONLY memories USING hnsw (embedding halfvec_cosine_ops) "
            "WITH (m = 8, ef_construction = 32)"
        )
    for wanted in (IndexParameters(12, 48), IndexParameters(16, 64)):
        facts = await build_index(source, "memories", wanted)
        assert (facts.valid, facts.m, facts.ef_construction) == (True, wanted.m, wanted.ef_construction)
        parts = await parts_of(bench, "idx_memories_embedding")
        assert [part["name"] for part in parts] == [f"idx_memories_{user}_embedding" for user in USERS]
        assert {option for part in parts for option in part["options"]} == {
            f"m={wanted.m}",
            f"ef_construction={wanted.ef_construction}",
        }
    assert await bench.value("SELECT count(*) FROM pg_class WHERE relname LIKE '%rebuilt%'") == 0


async def test_the_recall_of_the_index_is_measured_and_repaired_over_all_partitions(bench: Workbench) -> None:
    await fill_partitions(bench)
    await bench.backfill()
    await build_index(DsnText(bench.database.dsn), "memories", INDEX)
    connection = await connect(DsnText(bench.database.dsn))
    table = await require_schema(connection, "memories")
    report = await check_and_repair(connection, table, INDEX, sample=8, repair_below=1.1)
    connection.terminate()
    assert (report.recall, report.recall_after_repair, report.facts.valid) == (1.0, 1.0, True)


async def test_the_documented_table_is_migrated_indexed_and_filled(database: Database, request_for: Requests) -> None:
    (block,) = re.findall(r"^```sql\n(CREATE TABLE.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    async with database.connection() as connection:
        await connection.execute(block)
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    assert (await build_index(source, "memories", INDEX)).valid
    async with database.connection() as connection:
        await connection.execute("INSERT INTO memories (content, user_id) VALUES ('one', 'ada'), ('two', 'bob')")
        facts = await inspect(connection, "memories")
    assert (facts.schema_differences, facts.rows.pending) == ("", 2)
