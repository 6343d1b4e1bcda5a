"""A recall that wanted an embedder and got no answer says so in the database, at no price to itself."""

import asyncio
from typing import Any

import asyncpg
import pytest

from memory_recall.contrib.replicas import ReplicaRecall
from memory_recall.errors import EmbedderRejected
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.search import hybrid_recall
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Degraded
from memory_recall.status import inspect
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.test_evaluate_command import run
from tests.integration.memory_recall.workbench import Workbench

UNREACHABLE = "http://127.0.0.1:9"  # the discard port, on which nothing listens
WANTED = "SELECT wanted_at FROM memory_index_state"


class Dead:
    model = "tiny"

    async def embed_query(self, _text: str) -> list[float]:
        raise RuntimeError("any")


class Slow(Dead):
    async def embed_query(self, _text: str) -> list[float]:
        await asyncio.Event().wait()
        return []


class Refusing(Dead):
    async def embed_query(self, _text: str) -> list[float]:
        raise EmbedderRejected("too long")


class Hosted(Dead):
    hosted = True


class Healthy(Dead):
    async def embed_query(self, _text: str) -> list[float]:
        return [1.0] * 8


@pytest.mark.finding("D11")
@pytest.mark.parametrize(
    ("embedder", "options", "reasons", "wanted"),
    [
        (Dead(), {}, {Degraded.EMBEDDER_FAILED}, True),
        (Slow(), {}, {Degraded.EMBEDDER_TIMEOUT}, True),
        (Healthy(), {}, {None}, False),
        (Refusing(), {}, {Degraded.EMBEDDER_REFUSED}, False),
        (Hosted(), {}, {Degraded.EMBEDDER_FAILED}, False),
        (None, {}, {Degraded.NO_EMBEDDER}, False),
        (Dead(), {"mode": "lexical"}, {None}, False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_embedder_that_did_not_answer_is_recorded_as_wanted(
    memories: Any, embedder: Any, options: dict[str, Any], reasons: set[Degraded | None], wanted: bool
) -> None:
    """One that answered, refused this query, or that no operator runs is not."""
    await memories.add("kettle")
    recall = memories.recalling(embedder)
    result = await recall.recall(make_query("kettle", **options))
    await recall.close()
    assert {result.reason} == reasons
    assert result.ids
    assert (await memories.pool.fetchval(WANTED) is not None) is wanted
    async with memories.pool.acquire() as connection:
        facts = await inspect(connection, "memories")
    assert (facts.seconds_since_wanted is not None) is wanted
    assert (facts.seconds_since_wanted or 0.0) >= 0.0


async def test_it_is_recorded_every_thirty_seconds_at_most(memories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one process, and by several together; a recall while the circuit is open counts as the first did."""
    recorded = []
    record = hybrid_recall.record_demand

    async def counted(*arguments: Any) -> None:
        recorded.append(arguments)
        await record(*arguments)

    monkeypatch.setattr(hybrid_recall, "record_demand", counted)
    recall = memories.recalling(Dead())
    reasons = [(await recall.recall(make_query("kettle"))).reason for _ in range(5)]
    assert reasons[1:] == [Degraded.CIRCUIT_OPEN] * 4
    await recall.close()
    assert len(recorded) == 1
    first = await memories.pool.fetchval(WANTED)
    another = memories.recalling(Dead())
    await another.recall(make_query("kettle"))
    await another.close()
    assert len(recorded) == 2
    assert await memories.pool.fetchval(WANTED) == first
    await memories.pool.execute("UPDATE memory_index_state SET wanted_at = now() - interval '31 s'")
    later = memories.recalling(Dead())
    await later.recall(make_query("kettle"))
    await later.close()
    assert await memories.pool.fetchval(WANTED) > first


async def test_recalls_come_first_where_no_connection_is_idle(memories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded after the next recall instead, and not by a task that was started before."""
    recall = memories.recalling(Dead())
    with monkeypatch.context() as busy:
        busy.setattr(asyncpg.Pool, "get_idle_size", lambda _pool: 0)
        await recall.recall(make_query("kettle"))
        assert recall._demand is None
    await recall.recall(make_query("kettle"))
    assert recall._demand is not None
    await recall.close()
    assert await memories.pool.fetchval(WANTED) is not None


@pytest.mark.parametrize(
    "hindrance",
    [
        "ALTER TABLE memory_index_state DROP COLUMN wanted_at",
        "REVOKE ALL ON memory_index_state FROM app; GRANT SELECT ON memory_index_state TO app",
        "BEGIN; SELECT * FROM memory_index_state FOR UPDATE",
    ],
    ids=["an older schema", "a role that may not write", "a locked row"],
)
async def test_a_recall_neither_fails_nor_waits_where_nothing_can_be_recorded(
    memories: Any, database: Any, hindrance: str
) -> None:
    """And no statement is refused, which would be an error in the server's log every half minute."""
    await memories.add("kettle")
    recall = memories.recalling(Dead())
    async with database.connection() as holder:
        await holder.execute(hindrance)
        begun = len(database.server.log.read_text())
        async with asyncio.timeout(30):
            result = await recall.recall(make_query("kettle"))
            await recall.close()
        assert result.ids
        assert "ERROR" not in database.server.log.read_text()[begun:]
    if "DROP" not in hindrance:
        assert await memories.pool.fetchval(WANTED) is None


async def test_nothing_is_recorded_in_a_read_only_session(memories: Any, database: Any) -> None:
    """As an API has it that reads through a user of its own."""
    await memories.add("kettle")
    pool = await asyncpg.create_pool(database.dsn, server_settings={"default_transaction_read_only": "on"})
    recall = HybridRecall(pool, Dead(), RecallOptions(time_budget=60.0))
    assert len(await _recalls_without_a_record(pool, recall, database)) == 1
    assert await memories.pool.fetchval(WANTED) is None


async def test_nothing_is_recorded_on_a_replica(own_bench: Workbench) -> None:
    """Where every write is an error, and to which a pool of the primary leads once that has become a replica."""
    bench = own_bench
    await build_index(DsnText(bench.database.dsn), "memories", IndexParameters())
    server = bench.database.server
    server.stop("fast")
    server.become_replica()
    server.start()
    pool = await create_pool(DsnText(bench.database.dsn))
    recall = ReplicaRecall(HybridRecall(pool, Dead(), RecallOptions(time_budget=60.0)), pool)
    assert await _recalls_without_a_record(pool, recall, bench.database) == []
    assert await bench.value("SELECT pg_is_in_recovery()")
    assert await bench.value(WANTED) is None


async def _recalls_without_a_record(pool: Any, recall: HybridRecall, database: Any) -> list[int]:
    begun = len(database.server.log.read_text())
    result = await recall.recall(make_query("kettle"))
    await recall.close()
    await pool.close()
    assert result.reason is Degraded.EMBEDDER_FAILED
    assert "ERROR" not in database.server.log.read_text()[begun:]
    return result.ids


async def test_a_command_that_recalls_once_and_ends_has_it_recorded(bench: Workbench) -> None:
    """The process does not end before, and its answer is the lexical one."""
    await bench.insert("kettle")
    await build_index(DsnText(bench.database.dsn), "memories", IndexParameters())
    environment = bench.environment(MEMORY_EMBEDDER_URL=UNREACHABLE)
    code, out, err = await run(environment, "recall", "kettle", "--everyone", "--json")
    assert code == 0, err
    assert '"EmbedderFailed"' in out
    assert await bench.value(WANTED) is not None
