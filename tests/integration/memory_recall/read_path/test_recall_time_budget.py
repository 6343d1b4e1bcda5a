"""A recall answers or refuses within its time budget, whatever the database does, and leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from memory_recall import DatabaseUnreachable, Degraded, HybridRecall, RecallOptions
from memory_recall.search import recall as recall_module
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import report_jit
from tests.integration.memory_recall.read_path.vectors import axis
from tests.support.loopback_server import LoopbackServer

BUDGET = 0.35  # seconds; no divisor of the cleanup's second, lest a connect be cancelled in the moment in which it ends
LONGEST_SECONDS = 60.0  # seconds, after which a recall that its budget does not end fails the test


class BlackHole(LoopbackServer):
    """Stands before Postgres and, from a moment on, takes connections and bytes and never answers, as a failover does.

    A connection that it swallowed stays silent for good, also after the server has come back.
    """

    def __init__(self, dsn: str) -> None:
        super().__init__()
        parts = urlsplit(dsn)
        self._upstream = (parts.hostname, parts.port)
        self._dsn = dsn
        self._silent = False
        self._went_silent = asyncio.Event()

    @property
    def dsn(self) -> str:
        return self._dsn.replace(f"{self._upstream[0]}:{self._upstream[1]}", f"{self.host}:{self.port}")

    def swallow(self) -> None:
        self._silent = True
        self._went_silent.set()

    def answer_new_connections(self) -> None:
        self._silent = False
        self._went_silent = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._silent:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            try:
                pumps = [asyncio.ensure_future(pump) for pump in (_pump(reader, up_writer), _pump(up_reader, writer))]
                silence = asyncio.ensure_future(self._went_silent.wait())
                await asyncio.wait([*pumps, silence], return_when=asyncio.FIRST_COMPLETED)
                silent = silence.done()
                for task in (*pumps, silence):
                    task.cancel()
                await asyncio.gather(*pumps, silence, return_exceptions=True)
                if not silent:
                    return
            finally:
                up_writer.transport.abort()
        while await reader.read(65_536):  # swallowed, until the client hangs up
            pass


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@pytest.fixture
async def hole(database: Any) -> AsyncIterator[BlackHole]:
    async with BlackHole(database.dsn) as made:
        yield made


@pytest.mark.promise("recall-time-budget")
@pytest.mark.usefixtures("complaints")
async def test_an_exhausted_pool_refuses_the_recall_and_serves_the_next(memories: Any, database: Any) -> None:
    """Waiting for a connection is part of the budget; the connection is not lost to the pool."""
    wanted = await memories.add("the kettle boils")
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=1) as pool:
        recall = HybridRecall(pool, None, RecallOptions(time_budget=BUDGET))
        async with pool.acquire(), asyncio.timeout(LONGEST_SECONDS):
            for _ in range(3):
                with pytest.raises(DatabaseUnreachable, match=r"within its 0\.35 seconds"):
                    await recall.recall(make_query("kettle"))
        assert await _answered(recall) == [wanted]
        assert pool.get_idle_size() == pool.get_size()
        await recall.close()


@pytest.mark.promise("silent-server-delays-itself")
@pytest.mark.parametrize("warm", [True, False], ids=["amid its statements", "while it connects"])
@pytest.mark.usefixtures("complaints")
async def test_a_server_that_no_longer_answers_refuses_the_recall_and_serves_again_when_it_is_back(
    memories: Any, hole: BlackHole, warm: bool
) -> None:
    """Neither the statement, nor its cancellation, nor the return of its connection is waited for."""
    wanted = await memories.add("the kettle boils")
    async with asyncio.timeout(LONGEST_SECONDS):
        pool = await asyncpg.create_pool(hole.dsn, min_size=int(warm), max_size=2)
        recall = HybridRecall(pool, None, RecallOptions(time_budget=BUDGET))
        if warm:
            await _answered(recall)
        hole.swallow()
        for _ in range(3):
            with pytest.raises(DatabaseUnreachable):
                await recall.recall(make_query("kettle"))
        hole.answer_new_connections()
        assert await _answered(recall) == [wanted]
        await recall.close()
        await pool.close()


@pytest.mark.usefixtures("complaints")
@pytest.mark.parametrize("ended", [False, True], ids=["too late", "cut off"])
async def test_after_a_recall_has_failed_no_connection_of_before_is_used(
    memories: Any, database: Any, hole: BlackHole, ended: bool
) -> None:
    """The server at the other end of an idle one may have been replaced, and may answer with memories of before."""
    wanted = await memories.add("the kettle boils")
    async with asyncio.timeout(LONGEST_SECONDS):
        pool = await asyncpg.create_pool(hole.dsn, min_size=3, max_size=3)
        former = await _backends(pool)
        recall = HybridRecall(pool, None, RecallOptions(time_budget=BUDGET if not ended else LONGEST_SECONDS))
        await _answered(recall)
        if ended:
            async with asyncpg.create_pool(database.superuser_dsn, min_size=1, max_size=1) as admin:
                blocked = asyncio.create_task(_blocked(recall, memories))
                await _until(admin, "EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
                await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted")
                with pytest.raises(DatabaseUnreachable):
                    await blocked
        else:
            hole.swallow()
            with pytest.raises(DatabaseUnreachable):
                await recall.recall(make_query("kettle"))
            hole.answer_new_connections()
        present = await _backends(pool)
        assert len(former) == len(present) == 3
        assert former.isdisjoint(present)
        assert await _answered(recall) == [wanted]
        await recall.close()
        await pool.close()


async def test_where_recalls_are_rare_no_connection_to_a_server_that_was_silent_is_used(
    memories: Any, hole: BlackHole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked anything while it stood still and was replaced, so no recall has failed."""
    monkeypatch.setattr(recall_module, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(recall_module, "_TRIAL_SECONDS", BUDGET)
    wanted = await memories.add("the kettle boils")
    renewed = asyncio.Event()

    class Renewing(HybridRecall):
        async def _renew_connections(self) -> None:
            await super()._renew_connections()
            renewed.set()

    async with asyncio.timeout(LONGEST_SECONDS):
        pool = await asyncpg.create_pool(hole.dsn, min_size=3, max_size=3)
        former = await _backends(pool)
        recall = Renewing(pool, None, RecallOptions(time_budget=LONGEST_SECONDS))
        assert await _answered(recall) == [wanted]
        hole.swallow()
        await renewed.wait()
        hole.answer_new_connections()
        assert await _answered(recall) == [wanted]
        assert former.isdisjoint(await _backends(pool))
        await recall.close()
        await pool.close()


async def test_it_is_heard_when_idle_connections_cannot_be_tried(
    memories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody awaits the task that tries them."""
    monkeypatch.setattr(recall_module, "_QUIET_SECONDS", 0.01)
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(context["exception"]))

    class Failing(HybridRecall):
        async def _answers(self, _pool: Any) -> bool:
            raise LookupError

    recall = Failing(memories.pool, None, RecallOptions())
    async with asyncio.timeout(LONGEST_SECONDS):
        while not heard:
            await _answered(recall)
            await asyncio.sleep(0.02)
    assert [type(error) for error in heard] == [LookupError]
    await recall.close()


async def _backends(pool: Any) -> set[int]:
    """The processes of Postgres at the other end of all connections of a pool."""
    async with AsyncExitStack() as stack:
        taken = [await stack.enter_async_context(pool.acquire()) for _ in range(pool.get_max_size())]
        return {await connection.fetchval("SELECT pg_backend_pid()") for connection in taken}


async def _blocked(recall: HybridRecall, memories: Any) -> None:
    """Recall while the table is locked."""
    async with memories.pool.acquire() as other, other.transaction():
        await other.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        await recall.recall(make_query("kettle"))


@pytest.mark.usefixtures("complaints")
async def test_a_recall_in_a_transaction_is_refused_within_the_time_budget(
    memories: Any, database: Any, hole: BlackHole
) -> None:
    """Where Postgres compiles, a recall is one of three statements, and its rollback is not waited for either."""
    await report_jit(database)
    wanted = await memories.add("the kettle boils")
    async with asyncio.timeout(LONGEST_SECONDS):
        pool = await asyncpg.create_pool(hole.dsn, min_size=1, max_size=1)
        recall = HybridRecall(pool, None, RecallOptions(time_budget=BUDGET))
        await _answered(recall)
        hole.swallow()
        with pytest.raises(DatabaseUnreachable):
            await recall.recall(make_query("kettle"))
        hole.answer_new_connections()
        assert await _answered(recall) == [wanted]
        await recall.close()
        await pool.close()


async def _until(connection: Any, condition: str) -> None:
    async with asyncio.timeout(LONGEST_SECONDS):
        while not await connection.fetchval(f"SELECT {condition}"):  # noqa: ASYNC110  (it is the database that changes)
            await asyncio.sleep(0.01)


async def _answered(recall: HybridRecall) -> list[int]:
    """Repeat the recall until its answer arrives within the budget, which a busy machine may exceed."""
    while True:
        with suppress(DatabaseUnreachable):
            return (await recall.recall(make_query("kettle"))).ids


@pytest.mark.usefixtures("complaints")
async def test_a_cancelled_recall_leaves_no_running_statement(memories: Any, database: Any) -> None:
    """Its statement is cancelled in Postgres, and its connection returns to the pool."""
    await memories.add("the kettle boils")
    async with asyncio.timeout(LONGEST_SECONDS), asyncpg.create_pool(database.dsn, min_size=1, max_size=1) as pool:
        recall = HybridRecall(pool, None, RecallOptions(time_budget=LONGEST_SECONDS))
        await recall.recall(make_query("kettle"))
        async with memories.pool.acquire() as other, other.transaction():
            await other.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
            blocked = asyncio.create_task(recall.recall(make_query("kettle")))
            await _until(other, "EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            blocked.cancel()
            with suppress(asyncio.CancelledError):
                await blocked
            await _until(other, "NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        assert (await recall.recall(make_query("kettle"))).ids
        await recall.close()


@pytest.mark.usefixtures("complaints")
async def test_a_slow_embedder_leaves_time_for_the_lexical_answer(memories: Any) -> None:
    """Its own budget ends first, and an exception that it raises afterwards is nobody's."""
    wanted = await memories.add("the kettle boils", vector=axis(1.0))

    class Late:
        model = "tiny"

        async def embed_query(self, _: str) -> list[float]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionError("too late") from None
            return []

    recall = memories.recalling(Late(), embedding_budget=0.05)
    result = await recall.recall(make_query("kettle"))
    assert result.ids == [wanted]
    assert result.reason in {Degraded.EMBEDDER_TIMEOUT, Degraded.EMBEDDER_FAILED}
