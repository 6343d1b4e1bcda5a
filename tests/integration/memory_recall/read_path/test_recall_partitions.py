"""A recall of one user reads that user's partition alone, and partitions never show each other's rows."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from memory_recall.hnsw.repair import build_index
from memory_recall.hnsw.search_effort import SearchedGraph
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.ddl import literal
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.search.query import EmbeddedQuery
from memory_recall.search.sql import parallel
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.plan import DenseLeg, RecallPlan
from memory_recall.search.sql.statement import Statement, statement
from memory_recall.search.sql.visibility import EVERYONE
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.partitioned import USERS, create_partitioned
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import ChosenEmbedder, Memories, open_memories
from tests.integration.memory_recall.read_path.vectors import DIMENSIONS, axis
from tests.integration.memory_recall.workbench import INDEX

_SMALL, _LARGE = CollectionStatistics(400, 5.0, 60.0), CollectionStatistics(400_000, 5.0, 60.0)


@pytest.fixture
async def memories(copy_of: CopyOf, request_for: Callable[..., Any]) -> AsyncIterator[Memories]:
    """A hundred memories in the partition of each of four users, with vectors, indexed and analysed."""

    async def fill(empty: Database) -> None:
        await create_partitioned(empty, request_for(dimensions=DIMENSIONS, model="tiny"))
        async with open_memories(empty) as store:
            for user in USERS:
                for number in range(100):
                    await store.add(f"kettle {number} of {user}", vector=axis(1.0, number / 100), user_id=user)
        await build_index(DsnText(empty.dsn), "memories", INDEX)

    async with open_memories(await copy_of("recalled partitions", fill)) as store:
        yield store


def _argument(value: object) -> str:
    if isinstance(value, list):
        return literal("{" + ",".join(json.dumps(one) if one is not None else "NULL" for one in value) + "}")
    return literal(str(value))


def _statements(table: MemoryTable, statistics: CollectionStatistics) -> dict[str, Statement]:
    dense = DenseLeg(EmbeddedQuery(axis(1.0), None), hnsw=SearchedGraph(100, 24, 128))
    plan = RecallPlan(
        make_query("the kettle of ada", user_id="ada"),
        table,
        dense=dense,
        has_state=True,
        superseding=True,
        statistics=statistics,
    )
    found = parallel.LexicalRows(
        open=True, ids=[1, 2], scores=[1.0, 0.5], cosines=[0.5, None], terms=["'kettl'"], weights=[1.0]
    )
    return {
        "whole": statement(plan),
        "dense leg": parallel.dense_statement(plan),
        "lexical leg": parallel.lexical_statement(plan),
        "fusion": parallel.fusion_statement(plan, parallel.DenseRows(open=True, ids=[1, 3], scores=[0.9, 0.8]), found),
    }


@pytest.mark.parametrize("kept", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statistics", [_SMALL, _LARGE])
async def test_a_recall_of_one_user_reads_one_partition(
    memories: Memories, kept: str, statistics: CollectionStatistics
) -> None:
    """Whether Postgres plans for the user, or keeps one plan for all users and leaves partitions out as it begins."""
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        await connection.execute(f"SET plan_cache_mode = {kept}")
        for name, (sql, arguments) in _statements(table, statistics).items():
            await connection.execute(f"PREPARE asked AS {sql}")
            given = ", ".join(map(_argument, arguments))
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN (ANALYZE) EXECUTE asked({given})"))
            await connection.execute("DEALLOCATE asked")
            assert "memories_ada" in plan, name
            assert [user for user in USERS[1:] if f"memories_{user}" in plan] == [], f"{name}:\n{plan}"


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense"])
async def test_a_recall_of_one_user_finds_that_users_memories_and_one_of_everybody_all(
    memories: Memories, mode: Any
) -> None:
    recall = memories.recalling(ChosenEmbedder())
    mine = await recall.recall(make_query("kettle", user_id="bob", mode=mode, limit=50))
    assert ({memory.owner for memory in mine.memories}, len(mine.memories), mine.reason) == ({"bob"}, 50, None)
    everybody = await recall.recall(make_query("kettle", user_id=EVERYONE, mode=mode, limit=400))
    assert {memory.owner for memory in everybody.memories} == set(USERS)


async def test_everybodys_nearest_memories_are_found_although_all_are_in_one_of_many_partitions(
    memories: Memories,
) -> None:
    """Each partition's scan keeps fewer candidates the more partitions there are, and goes on where it must."""
    await memories.pool.execute("CREATE TABLE memories_zoe PARTITION OF memories FOR VALUES IN ('zoe')")
    for number in range(95):
        user = f"u{number}"
        await memories.pool.execute(f"CREATE TABLE memories_{user} PARTITION OF memories FOR VALUES IN ('{user}')")
        await memories.add("far", vector=axis(1.0), user_id=user)
    near = {await memories.add("near", vector=axis(n / 1000, 1.0), user_id="zoe") for n in range(50)}
    for number in range(100):
        await memories.add("farther", vector=axis(0.1 + number / 1000, 1.0), user_id="zoe")
    async with memories.pool.acquire() as connection:
        table = await describe(connection, "memories")
        plan = RecallPlan(
            make_query("unrelated", mode="dense", user_id=EVERYONE),
            table,
            dense=DenseLeg(EmbeddedQuery(axis(1.0), None), hnsw=SearchedGraph(150, 24, 128)),
        )
    assert "set_config('hnsw.ef_search', '34', true)" in statement(plan)[0], "fewer than the leg returns"
    recall = memories.recalling(ChosenEmbedder({"unrelated": axis(0.0, 1.0)}))
    found = await recall.recall(make_query("unrelated", mode="dense", user_id=EVERYONE, limit=50))
    assert set(found.ids) == near


@pytest.mark.parametrize("hidden", ["is_sensitive = true", "deleted_at = now()"])
async def test_a_row_with_the_same_id_in_another_partition_is_never_shown_in_place_of_the_found_one(
    memories: Memories, hidden: str
) -> None:
    """No key forbids such rows, because the key of a partitioned table holds the user, too."""
    number = await memories.add("the teapot is blue", vector=axis(0.0, 1.0), user_id="dan")
    insert = "INSERT INTO memories (id, content, user_id) VALUES ($1, 'a secret', $2)"
    for user in USERS[:3]:
        await memories.pool.execute(insert, number, user)
    await memories.pool.execute(f"UPDATE memories SET {hidden} WHERE id = $1 AND user_id <> 'dan'", number)
    recall = memories.recalling(ChosenEmbedder({"teapot": axis(0.0, 1.0)}))
    for user in ("dan", EVERYONE):
        found = (await recall.recall(make_query("teapot", user_id=user, limit=1))).memories
        assert [(memory.id, memory.owner, memory.content) for memory in found] == [
            (number, "dan", "the teapot is blue")
        ]
