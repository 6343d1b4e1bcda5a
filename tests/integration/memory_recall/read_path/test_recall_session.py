"""A recall is never compiled by Postgres, leaves the session as it was, and is prepared once."""

from typing import Any

import asyncpg
import pytest

from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Degraded
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import LONG_BUDGET, report_jit
from tests.integration.memory_recall.read_path.vectors import axis

JIT = "SET LOCAL jit = off"
TRANSACTION = {"BEGIN", "COMMIT", "ROLLBACK"}
WITH_JIT = {"jit": "on"}
UNCOMPILED = ["BEGIN READ ONLY", JIT, "recall", "COMMIT"]


class Sent:
    """The statements that the sessions of a pool sent, in order."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def listen(self, connection: Any) -> None:
        connection.add_query_logger(lambda record: self.queries.append(record.query))

    @property
    def around_the_recall(self) -> list[str]:
        """The recall statement as `recall`, with all that belongs to its transaction; no other transaction counts."""
        named = ["recall" if "gate AS" in query else query.strip(";") for query in self.queries]
        around, transaction = list[str](), list[str]()
        for query in named:
            if query in {"recall", JIT} or query.split()[0] in TRANSACTION:
                transaction.append(query)
            if query in {"COMMIT", "ROLLBACK"} or transaction == ["recall"]:
                around += transaction if "recall" in transaction else []
                transaction = []
        return around


@pytest.fixture
async def compiling(database: Any) -> str:
    """The address of a database that reports JIT."""
    await report_jit(database)
    return str(database.dsn)


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
async def test_a_recall_is_not_compiled_where_postgres_has_jit(
    compiling: str, memories: Any, embedder: Any, mode: Any
) -> None:
    """Compiling took 290 ms of each recall of a million rows, several times as long as running it."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(
        compiling, min_size=1, max_size=1, init=sent.listen, server_settings=WITH_JIT
    ) as pool:
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        result = await recall.recall(make_query("kettle", mode=mode))
        await recall.close()
        assert await pool.fetchval("SHOW jit") == "on"
    assert result.ids == [wanted]
    assert sent.around_the_recall == UNCOMPILED


async def test_the_measurement_of_legs_is_not_compiled_where_postgres_has_jit(
    compiling: str, memories: Any, embedder: Any
) -> None:
    """Otherwise an explained recall would report the times of another execution than the usual one."""
    await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(
        compiling, min_size=1, max_size=1, init=sent.listen, server_settings=WITH_JIT
    ) as pool:
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        result = await recall.recall(make_query("kettle", explain=True))
        await recall.close()
    assert {"dense", "lexical"} <= set(result.timings.legs)
    assert sent.around_the_recall == UNCOMPILED * 2


async def test_a_recall_is_one_round_trip_where_postgres_has_no_jit(
    memories: Any, database: Any, embedder: Any
) -> None:
    """The transaction is only paid for where it is needed."""
    await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=1, init=sent.listen) as pool:
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        await recall.recall(make_query("kettle"))
        await recall.close()
    assert sent.around_the_recall == ["recall"]


async def test_a_failing_dense_leg_leaves_the_lexical_order_where_postgres_has_jit(
    compiling: str, memories: Any, embedder: Any
) -> None:
    """The refused statement ends its transaction; the lexical one has another."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))
    sent = Sent()
    async with asyncpg.create_pool(
        compiling, min_size=1, max_size=1, init=sent.listen, server_settings=WITH_JIT
    ) as pool:
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        await recall.recall(make_query("kettle"))
        await pool.execute("ALTER TABLE memories RENAME COLUMN embedding TO gone")
        result = await recall.recall(make_query("kettle"))
        await recall.close()
    assert result.ids == [wanted]
    assert result.reason is Degraded.DENSE_FAILED
    assert sent.around_the_recall == [*UNCOMPILED, *UNCOMPILED[:-1], "ROLLBACK", *UNCOMPILED]


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
async def test_a_migration_that_changes_the_type_of_a_column_costs_no_recall_its_answer(
    compiling: str, memories: Any, embedder: Any, mode: Any
) -> None:
    """Postgres refuses a statement that was prepared before; within a transaction, asyncpg does not repeat it."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))
    async with asyncpg.create_pool(compiling, min_size=1, max_size=1, max_cacheable_statement_size=0) as pool:
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        await recall.recall(make_query("kettle", mode=mode))
        await memories.pool.execute("ALTER TABLE memories ALTER COLUMN importance TYPE double precision")
        result = await recall.recall(make_query("kettle", mode=mode))
        await recall.close()
    assert result.ids == [wanted]
    assert result.reason is None


async def test_a_session_of_our_pools_keeps_a_statement_prepared_however_long_it_is(memories: Any) -> None:
    """The longest recalls have 18,000 characters; by default asyncpg keeps no statement of more than 15,360."""
    statement = f"SELECT '{'long ' * 4_000}'"
    async with memories.pool.acquire() as connection:
        for _ in range(2):
            await connection.fetchval(statement)
        kept = await connection.fetch("SELECT statement FROM pg_prepared_statements")
    assert statement in {row["statement"] for row in kept}
