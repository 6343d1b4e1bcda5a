"""A swap of a partitioned table ends as that of an ordinary one, in every partition."""

from collections.abc import AsyncIterator, Callable

import pytest

from memory_recall.hnsw.repair import build_index
from memory_recall.postgres.connection import connect
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.status import inspect
from tests.integration.conftest import CopyOf
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.partitioned import USERS, create_partitioned, fill_partitions, parts_of
from tests.integration.memory_recall.swap.conftest import NEXT_SALT, SwapBench
from tests.integration.memory_recall.workbench import DIMENSIONS, INDEX, Workbench


@pytest.fixture
async def swaps(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[SwapBench]:
    """Ten embedded and indexed rows in each of four partitions, and a next model of the same length."""
    database = await copy_of("migrated partitions", lambda empty: create_partitioned(empty, request_for()))
    async with (
        FakeEmbedder(dimensions=DIMENSIONS) as active,
        FakeEmbedder(dimensions=DIMENSIONS, model="small", digest="sha256:bb") as following,
    ):
        following.salt = NEXT_SALT
        bench = SwapBench(Workbench(database, active), following)
        await fill_partitions(bench.work)
        await bench.work.backfill()
        await build_index(bench.source, "memories", INDEX)
        yield bench


async def _require_sound(swaps: SwapBench, users: int = len(USERS)) -> None:
    assert await swaps.problems() == []
    connection = await connect(swaps.source)
    facts = await inspect(connection, "memories")
    connection.terminate()
    assert (facts.schema_differences, facts.index.valid, facts.index.ours) == ("", True, True)
    for index in ("idx_memories_embedding", "idx_memories_embedding_pending"):
        parts = await parts_of(swaps.work, index)
        assert len(parts) == users
        assert all(part["valid"] for part in parts)


async def test_a_swap_replaces_the_vectors_of_every_partition_and_can_be_taken_back(swaps: SwapBench) -> None:
    await swaps.work.execute("INSERT INTO memories (content, is_sensitive) VALUES ('the canary secret', true)")
    assert (await swaps.swap()).stage == "flipped"
    assert (await swaps.roles()).active.name == "small"
    await _require_sound(swaps)
    assert not any("canary" in text for text in swaps.following.received)
    assert (await swaps.swap(back=True)).stage == "flipped"
    assert (await swaps.roles()).active.name == "tiny"
    await _require_sound(swaps)


async def test_swaps_follow_one_another_and_take_new_partitions_along(
    swaps: SwapBench, request_for: Callable[..., MigrationRequest]
) -> None:
    """Postgres names the indexes of a new partition by itself; none of their names may be in the way later."""
    await swaps.swap(flip=False)
    await swaps.work.execute("CREATE TABLE memories_eve PARTITION OF memories FOR VALUES IN ('eve')")
    await swaps.work.execute("INSERT INTO memories (content, user_id) VALUES ('of eve', 'eve')")
    await migrate(swaps.source, request_for())
    await swaps.swap()
    await _require_sound(swaps, 5)
    await swaps.end("finished")
    swaps.following.received.clear()
    third = swaps.target(name="tiny", digest="sha256:aa")
    assert (await swaps.swap(target=third)).stage == "flipped"
    await swaps.end("finished")
    await migrate(swaps.source, request_for())
    await _require_sound(swaps, 5)


async def test_an_aborted_swap_leaves_the_partitions_as_they_were(swaps: SwapBench) -> None:
    before = "SELECT array_agg(tgrelid::regclass || tgname ORDER BY tgrelid::regclass::text, tgname)::text "
    before += "FROM pg_trigger WHERE NOT tgisinternal"
    triggers = await swaps.work.value(before)
    await swaps.swap(flip=False)
    await swaps.end("aborted")
    assert await swaps.work.value(before) == triggers
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE '%standby%' AND relkind IN ('i', 'I')"
    assert await swaps.work.value(f"{left} AND relname LIKE 'idx_%'") == 0
    await _require_sound(swaps)
