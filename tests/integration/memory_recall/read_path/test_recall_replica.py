"""A recall that searches a replica gives of a memory what the primary says now, however far the replica lags behind."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from memory_recall import EVERYONE, DatabaseUnreachable, Degraded, Everyone, Filters, LockNotAvailable
from memory_recall.contrib.replicas import ReplicaRecall
from memory_recall.contrib.second_stage import SecondStage
from memory_recall.errors import ReplicaRefused
from tests.integration.memory_recall.partitioned import PARTITIONED_TABLE
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import ChosenEmbedder
from tests.integration.memory_recall.read_path.replicated import Replicated, open_replicated
from tests.integration.memory_recall.read_path.splitting import Fetched, judged
from tests.integration.memory_recall.read_path.test_recall_demand import WANTED, Dead
from tests.integration.memory_recall.read_path.test_recall_route import client
from tests.integration.memory_recall.read_path.test_recall_second_stage import ShortestFirst
from tests.integration.memory_recall.read_path.vectors import axis
from tests.support.postgres_instance import PostgresInstance

SECRET = "the kettle opens with kestrel"
CHANGES = {
    "becomes sensitive": ("UPDATE memories SET is_sensitive = true", False),
    "is marked as deleted": ("UPDATE memories SET deleted_at = now()", False),
    "is deleted": ("DELETE FROM memories", False),
    "gets another user": ("UPDATE memories SET user_id = 'bob'", True),
    "gets another user and becomes sensitive": ("UPDATE memories SET user_id = 'bob', is_sensitive = true", False),
    "gets another category": ("UPDATE memories SET category = 'secrets'", False),
    "is edited": ("UPDATE memories SET content = 'the kettle is blue', tags = 'blue'", False),
}
"""What happens to the memory with the secret, and whether anybody is still shown its text."""
READERS = ["ana", "bob", EVERYONE, Everyone(reader="ana"), Everyone(reader="bob")]
SHOWN = ("id", "content", "tags", "category", "owner", "is_sensitive")


@pytest.fixture
async def replicated(memories: Any, database: Any, replica: PostgresInstance) -> AsyncIterator[Replicated]:
    async with open_replicated(memories, database, replica) as opened:
        yield opened


async def add_secret(replicated: Replicated) -> int:
    """Add a memory with the secret, which is not sensitive yet, between two others of the same user."""
    add = replicated.memories.add
    await add("a kettle of fish", vector=axis(1.0, 0.5), user_id="ana")
    secret = await add(SECRET, vector=axis(1.0), tags="door", user_id="ana")
    await add("the kettle whistles", vector=axis(1.0, 0.1), user_id="ana")
    return int(secret)


async def everything_shown(recall: Any) -> list[set[tuple[Any, ...]]]:
    """Return all that every reader is shown, as memories and as rows of the table."""
    shown: list[set[tuple[Any, ...]]] = []
    for reader in READERS:
        query = make_query("kettle", user_id=reader, filters=Filters(category="facts"))
        shown.append({tuple(getattr(one, name) for name in SHOWN) for one in (await recall.recall(query)).memories})
        rows = await recall.recall_rows(query)
        shown.append({tuple(row.get(name) for name in (*SHOWN, "user_id")) for row in rows})
    return shown


async def test_what_a_replica_found_is_held_back_as_what_the_primary_finds(
    replicated: Replicated, embedder: ChosenEmbedder
) -> None:
    await replicated.memories.pool.execute("UPDATE memory_index_models SET usual_cosine = 0.2")
    await add_secret(replicated)
    await replicated.catch_up()
    primary, replica = replicated.memories.recalling(embedder), replicated.recalling(embedder)
    rated = await primary.recall(make_query("kettle", least_relevance=0.0))
    least = max(one.relevance for one in rated.memories)
    for query in (make_query("kettle", least_relevance=0.0), make_query("kettle", least_relevance=least)):
        found, wanted = await replica.recall(query), await primary.recall(query)
        assert judged(found) == judged(wanted)
        assert (found.held_back, found.relevance_basis) == (wanted.held_back, wanted.relevance_basis)
    assert found.held_back > 0


@pytest.mark.promise("replica-answers-checked")
@pytest.mark.parametrize(("change", "readable"), CHANGES.values(), ids=CHANGES)
async def test_a_memory_that_changed_a_moment_ago_is_shown_as_the_primary_has_it(
    replicated: Replicated, embedder: ChosenEmbedder, change: str, readable: bool
) -> None:
    """No reader gets more than the primary would show him, from a replica that has not replayed the change."""
    secret = await add_secret(replicated)
    recall, on_primary = replicated.recalling(embedder), replicated.memories.recalling(embedder)
    async with replicated.lagging():
        await replicated.memories.pool.execute(f"{change} WHERE id = $1", secret)
        shown = await everything_shown(recall)
        for given, right in zip(shown, await everything_shown(on_primary), strict=True):
            assert {one for one in right if one[0] != secret} <= given <= right
        assert (SECRET in str(shown)) is readable
        assert await replicated.pool.fetchval("SELECT content FROM memories WHERE id = $1", secret) == SECRET


async def test_so_it_is_when_both_legs_run_on_two_connections(
    replicated: Replicated, embedder: ChosenEmbedder, fetched: Fetched
) -> None:
    """The statement that fuses them on the replica knows no more than they do."""
    secret = await add_secret(replicated)
    recall = replicated.recalling(embedder)
    async with replicated.lagging():
        await replicated.memories.pool.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", secret)
        shown = await everything_shown(recall)
    assert fetched.split
    assert SECRET not in str(shown)
    assert "the kettle whistles" in str(shown)


@pytest.mark.promise("replica-answers-checked")
async def test_the_text_of_a_memory_that_became_sensitive_reaches_no_reranker(
    replicated: Replicated, embedder: ChosenEmbedder
) -> None:
    """It is sent what the primary says, too."""
    secret = await add_secret(replicated)
    reranker = ShortestFirst()
    recall = SecondStage(replicated.recalling(embedder), reranker)
    async with replicated.lagging():
        await replicated.memories.pool.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", secret)
        assert (await recall.recall(make_query("kettle", user_id="ana"))).reranked
    assert sorted(reranker.texts) == ["a kettle of fish", "the kettle whistles"]


async def test_a_memory_that_moved_to_another_partition_is_not_shown_to_its_former_user(
    replicated: Replicated, embedder: ChosenEmbedder
) -> None:
    """In a partitioned table another partition may also have a memory of the same id."""
    async with replicated.memories.pool.acquire() as connection:
        await connection.execute("DROP TABLE memories CASCADE")
        for statement in PARTITIONED_TABLE:
            await connection.execute(statement)
        insert = "INSERT INTO memories (id, content, user_id) VALUES ($1, $2, $3)"
        await connection.executemany(insert, [(1, SECRET, "ada"), (2, "a kettle of fish", "ada"), (2, SECRET, "bob")])
    recall = replicated.recalling(embedder)
    async with replicated.lagging():
        await replicated.memories.pool.execute("UPDATE memories SET user_id = 'cleo' WHERE user_id = 'ada' AND id = 1")
        result = await recall.recall(make_query("kettle", user_id="ada"))
    assert [(one.id, one.content) for one in result.memories] == [(2, "a kettle of fish")]


async def test_a_replica_that_has_caught_up_answers_as_the_primary_does(
    filled: Any, filled_database: Any, replica: PostgresInstance, embedder: ChosenEmbedder
) -> None:
    """The order, scores and ranks of the legs are those that the replica computed."""
    async with open_replicated(filled, filled_database, replica) as replicated:
        await replicated.catch_up()
        for mode in ("hybrid", "lexical", "dense"):
            query = make_query("zfs scrub pool", mode=mode, limit=20, offset=2, user_id="default")
            found = await replicated.recalling(embedder).recall(query)
            assert judged(found) == judged(await filled.recalling(embedder).recall(query))
            assert found.memories
            assert found.reason is None


@pytest.mark.promise("replica-answers-checked")
async def test_an_answer_of_a_replica_is_refused_without_a_primary(
    replicated: Replicated, embedder: ChosenEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is missing or leads to a replica itself; the router answers 503, and 200 with a primary."""
    await add_secret(replicated)
    await replicated.catch_up()
    alone = replicated.recalling_alone(embedder)
    refused_by = {
        alone: "A replica answered",
        SecondStage(alone, ShortestFirst()): "A replica answered",
        replicated.recalling(embedder, primary=replicated.pool): "leads to a replica",
    }
    for recall, message in refused_by.items():
        with caplog.at_level(logging.DEBUG), pytest.raises(ReplicaRefused, match=message) as refused:
            await recall.recall(make_query("kettle"))
        assert isinstance(refused.value, DatabaseUnreachable)
        async with client(recall) as http:
            answer = await http.post("/api/memories/recall", json={"context": "kettle"})
        assert (answer.status_code, answer.json()) == (503, {"detail": "ReplicaRefused"})
        assert "kestrel" not in caplog.text
    async with client(replicated.recalling(embedder)) as http:
        answer = await http.post("/api/memories/recall", json={"context": "kettle"})
    assert SECRET in json.dumps(answer.json())


async def test_a_recall_is_refused_while_the_primary_is_away(replicated: Replicated, embedder: ChosenEmbedder) -> None:
    """The replica alone cannot tell what may be shown."""
    await add_secret(replicated)
    await replicated.catch_up()
    primary = asyncpg.create_pool("postgresql://app@127.0.0.1:9/any", min_size=0)
    recall = replicated.recalling(embedder, primary=await primary)
    with pytest.raises(DatabaseUnreachable):
        await recall.recall(make_query("kettle"))
    await primary.close()


async def test_a_recall_that_stands_in_the_way_of_replaying_is_cancelled_and_can_be_repeated(
    replicated: Replicated, database: Any
) -> None:
    """The error is the one for a lock that another session holds, which callers repeat; the router answers 503."""
    secret = await add_secret(replicated)
    await replicated.memories.pool.execute(
        "CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql"
        " AS 'SELECT pg_sleep(50) IS NOT NULL AND pg_catalog.pg_is_in_recovery()'"
    )
    await replicated.catch_up()
    dsn = replicated.server.dsn(database.name)
    slow: Any = await asyncpg.create_pool(dsn, server_settings={"search_path": "public, pg_catalog"})
    async with replicated.cancelling_at_once():
        recall = replicated.recalling(pool=slow)
        recalling = asyncio.create_task(recall.recall(make_query("kettle")))
        await replicated.until_asleep()
        await replicated.memories.pool.execute("ALTER TABLE memories ADD COLUMN further integer")
        with pytest.raises(LockNotAvailable):
            await recalling
    await recall.close()
    await slow.close()
    await replicated.catch_up()
    assert secret in (await replicated.recalling().recall(make_query("kettle"))).ids


async def test_an_answer_of_the_primary_is_not_read_again(memories: Any, embedder: ChosenEmbedder) -> None:
    """A pool may lead to all instances; the primary's own answer costs no second statement."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))
    no_pool: Any = object()
    recall = ReplicaRecall(memories.recalling(embedder), no_pool)
    assert (await recall.recall(make_query("kettle"))).ids == [wanted]


async def test_that_an_embedder_is_wanted_is_recorded_on_the_primary(replicated: Replicated) -> None:
    """Otherwise recalls on replicas would never start an embedder that was scaled to zero."""
    await replicated.memories.add("kettle")
    await replicated.catch_up()
    recall = replicated.recalling(Dead())
    assert (await recall.recall(make_query("kettle"))).reason is Degraded.EMBEDDER_FAILED
    await recall.close()
    assert await replicated.memories.pool.fetchval(WANTED) is not None
