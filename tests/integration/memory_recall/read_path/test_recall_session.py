"""A recall is never compiled by Postgres, and leaves the session as it was."""

from typing import Any

import asyncpg
import pytest

from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.result import Degraded
from tests.integration.memory_recall.queries import asked
from tests.integration.memory_recall.read_path.conftest import PATIENT
from tests.integration.memory_recall.read_path.vectors import axis

JIT = "SET LOCAL jit = off"
TRANSACTION = {"BEGIN", "COMMIT", "ROLLBACK"}
OURS_FIRST = {"search_path": "public, pg_catalog", "jit": "on"}
UNCOMPILED = ["BEGIN READ ONLY", JIT, "recall", "COMMIT"]


class Sent:
    """What the sessions of a pool were asked, in order."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def listen(self, connection: Any) -> None:
        connection.add_query_logger(lambda record: self.queries.append(record.query))

    @property
    def around_the_recall(self) -> list[str]:
        """The recall statement as `recall`, with all that belongs to its transaction."""
        named = ["recall" if "gate AS" in query else query.strip(";") for query in self.queries]
        return [query for query in named if query in {"recall", JIT} or query.split()[0] in TRANSACTION]


@pytest.fixture
async def compiling(database: Any, memories: Any) -> str:
    """The address of a database that says that it compiles, for sessions that ask our function first."""
    await memories.pool.execute(
        "CREATE FUNCTION public.pg_jit_available() RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )
    return str(database.dsn)


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
async def test_where_postgres_compiles_a_recall_is_kept_from_it(
    compiling: str, memories: Any, embedder: Any, mode: Any
) -> None:
    """Compiling took 290 ms of each recall of a million rows, several times as long as running it."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(
        compiling, min_size=1, max_size=1, init=sent.listen, server_settings=OURS_FIRST
    ) as pool:
        recall = HybridRecall(pool, embedder, time_budget=PATIENT)
        result = await recall.recall(asked("kettle", mode=mode))
        await recall.close()
        assert await pool.fetchval("SHOW jit") == "on"
    assert result.ids == [wanted]
    assert sent.around_the_recall == UNCOMPILED


async def test_the_measuring_of_legs_is_kept_from_it_too(compiling: str, memories: Any, embedder: Any) -> None:
    """Otherwise an explained recall would tell the times of another execution than the usual one."""
    await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(
        compiling, min_size=1, max_size=1, init=sent.listen, server_settings=OURS_FIRST
    ) as pool:
        recall = HybridRecall(pool, embedder, time_budget=PATIENT)
        result = await recall.recall(asked("kettle", explain=True))
        await recall.close()
    assert {"dense", "lexical"} <= set(result.timings.legs)
    assert sent.around_the_recall == UNCOMPILED * 2


async def test_where_postgres_compiles_nothing_a_recall_is_one_round_trip(
    memories: Any, database: Any, embedder: Any
) -> None:
    """The transaction is only paid for where it is needed."""
    await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=1, init=sent.listen) as pool:
        recall = HybridRecall(pool, embedder, time_budget=PATIENT)
        await recall.recall(asked("kettle"))
        await recall.close()
    assert sent.around_the_recall == ["recall"]


async def test_a_dense_leg_that_fails_where_postgres_compiles_leaves_the_lexical_order(
    compiling: str, memories: Any, embedder: Any
) -> None:
    """The refused statement ends its transaction; the lexical one has another."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(
        compiling, min_size=1, max_size=1, init=sent.listen, server_settings=OURS_FIRST
    ) as pool:
        recall = HybridRecall(pool, embedder, time_budget=PATIENT)
        await recall.recall(asked("kettle"))
        await pool.execute("ALTER TABLE memories RENAME COLUMN embedding TO gone")
        result = await recall.recall(asked("kettle"))
        await recall.close()
    assert result.ids == [wanted]
    assert result.reason is Degraded.DENSE_FAILED
    assert sent.around_the_recall == [*UNCOMPILED, *UNCOMPILED[:-1], "ROLLBACK", *UNCOMPILED]
