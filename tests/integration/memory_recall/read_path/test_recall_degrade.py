"""A recall without the dense leg has exactly the lexical order, a reason and no error."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import asyncpg
import pytest

from memory_recall.errors import DatabaseRejected, DatabaseUnreachable, EmbedderUnavailable
from memory_recall.search.result import Degraded
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.rows import fill
from tests.integration.memory_recall.read_path.vectors import axis


async def no_embedder(_: Any, __: Any) -> None:
    return None


async def drop_index(memories: Any, _: Any) -> None:
    await memories.pool.execute("DROP INDEX idx_memories_embedding")


async def drop_column(memories: Any, _: Any) -> None:
    await memories.pool.execute("ALTER TABLE memories DROP COLUMN embedding CASCADE")


async def drop_state(memories: Any, _: Any) -> None:
    await memories.pool.execute("DROP TABLE memory_index_state")


async def drop_extension(_: Any, database: Any) -> None:
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute("DROP EXTENSION vector CASCADE")
    await connection.close()


async def change_model(memories: Any, _: Any) -> None:
    await memories.pool.execute("UPDATE memory_index_models SET name = 'another'")


CASES: list[tuple[str, Callable[[Any, Any], Awaitable[None]], Any, Degraded]] = [
    ("no embedder", no_embedder, None, Degraded.NO_EMBEDDER),
    ("no index", drop_index, axis(1.0), Degraded.INDEX_MISSING),
    ("no column", drop_column, axis(1.0), Degraded.SCHEMA_MISSING),
    ("no state", drop_state, axis(1.0), Degraded.SCHEMA_MISSING),
    ("no extension", drop_extension, axis(1.0), Degraded.EXTENSION_MISSING),
    ("another model", change_model, axis(1.0), Degraded.MODEL_MISMATCH),
    ("wrong dimensions", no_embedder, [1.0, 2.0], Degraded.DIMENSION_MISMATCH),
    ("not a number", no_embedder, [float("nan"), *axis(1.0)[1:-1], 1.0], Degraded.DENSE_FAILED),
    ("no direction", no_embedder, axis(0.0), Degraded.EMBEDDER_FAILED),
    ("embedder fails", no_embedder, EmbedderUnavailable("gone"), Degraded.EMBEDDER_FAILED),
    ("embedder breaks", no_embedder, RuntimeError("any"), Degraded.EMBEDDER_FAILED),
]


@pytest.mark.parametrize(("damage", "vector", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("mode", ["hybrid", "dense"])
async def test_a_degraded_answer_has_the_lexical_order_and_a_reason(  # noqa: PLR0917  (fixtures and a table of cases)
    memories: Any, embedder: Any, database: Any, damage: Any, vector: Any, reason: Degraded, mode: str
) -> None:
    """For both lexical legs and the sort orders that fuse."""
    await fill(memories)
    await damage(memories, database)
    embedder.vectors["scrub the zfs pool"] = vector
    for lexical in ("bm25", "ts_rank"):
        for sort_by in ("relevance", "importance"):
            words = memories.recalling(lexical=lexical)
            expected = await words.recall(make_query("scrub the zfs pool", mode="lexical", sort_by=sort_by))
            recall = memories.recalling(None if vector is None else embedder, lexical=lexical)
            result = await recall.recall(make_query("scrub the zfs pool", mode=mode, sort_by=sort_by))
            assert result.reason is reason
            assert result.ids == expected.ids
            assert len(result.ids) == 10


async def test_a_recall_is_degraded_when_the_column_is_dropped_while_it_is_in_use(memories: Any, embedder: Any) -> None:
    """What a recall has cached of the schema may be outdated; it notices this and answers."""
    await fill(memories)
    recall = memories.recalling(embedder)
    assert not (await recall.recall(make_query("zfs pool"))).degraded
    expected = (await recall.recall(make_query("zfs pool", mode="lexical"))).ids
    await memories.pool.execute("ALTER TABLE memories DROP COLUMN embedding CASCADE")
    assert (await recall.recall(make_query("zfs pool"))).ids == expected
    assert (await recall.recall(make_query("zfs pool"))).reason is Degraded.SCHEMA_MISSING


async def test_no_connection_is_held_while_the_query_is_embedded(memories: Any) -> None:
    """A slow embedder must not exhaust the API's pool."""
    await fill(memories)
    free: list[int] = []

    class Watching:
        model = "tiny"

        async def embed_query(self, _: str) -> list[float]:
            free.append(memories.pool.get_idle_size() - memories.pool.get_size())
            return axis(1.0)

    result = await memories.recalling(Watching()).recall(make_query("zfs pool"))
    assert not result.degraded
    assert free == [0]


async def test_a_slow_embedder_delays_a_recall_by_at_most_its_budget(memories: Any) -> None:
    """Past the budget the answer is lexical."""

    class Silent:
        model = "tiny"

        async def embed_query(self, _: str) -> list[float]:
            await asyncio.Event().wait()
            return []

    await fill(memories)
    recall = memories.recalling(Silent(), embedding_budget=0.01)
    assert (await recall.recall(make_query("zfs pool"))).reason is Degraded.EMBEDDER_TIMEOUT
    assert (await recall.recall(make_query("zfs pool"))).reason is Degraded.CIRCUIT_OPEN


async def test_a_database_that_is_gone_is_an_error(memories: Any, database: Any) -> None:
    """A database that is gone is the one thing that recall reports."""
    await memories.add("x")
    recall = memories.recalling()
    await recall.recall(make_query("x"))
    await memories.pool.close()
    with pytest.raises(DatabaseUnreachable):
        await recall.recall(make_query("x"))


async def _refused(*_: object) -> None:
    raise DatabaseRejected("refused", "")


async def _unanswered(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("measuring", [_refused, _unanswered])
async def test_a_table_that_cannot_be_measured_in_time_is_searched_all_the_same(
    memories: Any, monkeypatch: pytest.MonkeyPatch, measuring: Any
) -> None:
    """Its statistics only shape the scores, so usual ones serve this recall and the next until they are known."""
    wanted = await memories.add("the kettle boils")
    measure = AsyncMock(side_effect=measuring)
    monkeypatch.setattr("memory_recall.search.hybrid_recall.measure_collection", measure)
    recall = memories.recalling(time_budget=2.0)
    result = None
    while result is None:  # a busy machine may exceed what is left of the budget
        with suppress(DatabaseUnreachable):
            result = await recall.recall(make_query("kettle", mode="lexical"))
    assert result.ids == [wanted]
    assert result.memories[0].evidence.lexical_score > 0
    measure.reset_mock()
    assert (await recall.recall(make_query("kettle", mode="lexical"))).ids == [wanted]
    measure.assert_not_called()


async def test_every_result_is_observed(memories: Any, embedder: Any) -> None:
    """Degrades are invisible to callers and visible to metrics."""
    await memories.add("x", vector=axis(1.0))
    seen: list[Any] = []
    recall = memories.recalling(embedder, observe=seen.append)
    await recall.recall(make_query("x"))
    embedder.vectors["y"] = RuntimeError()
    await recall.recall(make_query("y"))
    assert [result.reason for result in seen] == [None, Degraded.EMBEDDER_FAILED]
