"""Which failures of a recall make it give up the connections of its pool."""

import asyncio
import math
from typing import Any

import asyncpg
import pytest

from memory_recall.errors import AuthenticationFailed, MemoryIndexError, ReplicaRefused, ServerNotVerified
from memory_recall.postgres.driver_errors import translate
from memory_recall.search.cached_value import CachedValue
from memory_recall.search.query import RecallQuery
from memory_recall.search.recall import Recalled, Request
from memory_recall.search.sql.visibility import EVERYONE
from tests.unit.memory_recall.fake_recall import FakeRecall

QUERY = RecallQuery("kettle", user_id=EVERYONE)


class FakePool:
    """A pool that lends a connection, or never does, and counts how often all connections were given up."""

    def __init__(self, *, exhausted: bool = False) -> None:
        self.given_up = 0
        self._exhausted = exhausted

    async def acquire(self) -> Any:
        if self._exhausted:
            await asyncio.Event().wait()
        return self

    async def release(self, _connection: Any) -> None:
        pass

    def terminate(self) -> None:
        pass

    async def expire_connections(self) -> None:
        self.given_up += 1


class FailingRecall(FakeRecall):
    """Fails with an error on a connection of its pool, or never ends if it is given none."""

    pools: Any = ()

    def __init__(self, pool: Any, error: BaseException | None) -> None:
        super().__init__(time_budget=0.2)
        self.pools = (pool,)
        self._error = error

    async def answer(self, request: Request) -> Recalled:
        async with self._borrowed(self.pools[0]):
            if self._error is not None:
                raise self._error
            await asyncio.Event().wait()
        return await super().answer(request)


class TwoRecalls(FakeRecall):
    """The first takes the only connection of its pool and keeps it, the second waits for one."""

    pools: Any = ()

    def __init__(self) -> None:
        super().__init__(time_budget=0.2)
        self.only = FakePool()
        self.pools = (self.only,)
        self.asked = 0

    async def answer(self, request: Request) -> Recalled:
        self.asked += 1
        if self.asked > 1:
            await asyncio.Event().wait()
        async with self._borrowed(self.only):
            await asyncio.Event().wait()
        return await super().answer(request)


async def given_up(pool: FakePool, error: BaseException | None) -> int:
    recall = FailingRecall(pool, error)
    with pytest.raises(MemoryIndexError):
        await recall.recall(QUERY)
    await recall.close()
    return pool.given_up


def postgres(sqlstate: str) -> MemoryIndexError:
    error = asyncpg.PostgresError("refused")
    setattr(error, "sqlstate", sqlstate)  # noqa: B010  (its type is that of a class)
    return translate(error, "recalling")


@pytest.mark.parametrize("sqlstate", ["53300", "53200", "53100", "57014", "57P05", "28P01", "42501"])
async def test_a_server_that_answers_with_a_refusal_costs_the_pool_no_connection(sqlstate: str) -> None:
    """Where it has no connection to spare, the pool would get none in place of those that it gave up."""
    assert await given_up(FakePool(), postgres(sqlstate)) == 0


@pytest.mark.parametrize("kind", [ReplicaRefused, ServerNotVerified, AuthenticationFailed])
async def test_what_a_new_connection_is_refused_for_costs_the_pool_none_of_those_it_has(
    kind: type[MemoryIndexError],
) -> None:
    assert await given_up(FakePool(), kind("refused")) == 0


@pytest.mark.parametrize("sqlstate", ["57P01", "57P02", "57P03", "08006"])
async def test_all_connections_to_a_server_that_stops_are_given_up(sqlstate: str) -> None:
    assert await given_up(FakePool(), postgres(sqlstate)) == 1


async def test_all_connections_are_given_up_once_a_recall_had_no_answer_on_one() -> None:
    assert await given_up(FakePool(), None) == 1
    assert await given_up(FakePool(), translate(ConnectionResetError(), "recalling")) == 1


async def test_a_recall_that_has_waited_for_a_connection_in_vain_costs_the_pool_none() -> None:
    """Others use them, so the server answers; more connections than these it may not take."""
    assert await given_up(FakePool(exhausted=True), None) == 0


async def test_of_two_recalls_that_are_late_only_the_one_with_a_connection_has_them_given_up() -> None:
    recall = TwoRecalls()
    holding = asyncio.create_task(recall.recall(QUERY))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(recall.recall(QUERY))
    with pytest.raises(MemoryIndexError):
        await holding
    assert (recall.only.given_up, recall.asked) == (1, 2)
    recall._renewed = -math.inf
    with pytest.raises(MemoryIndexError):
        await waiting
    assert recall.only.given_up == 1
    await recall.close()


async def test_a_measurement_in_the_background_is_no_connection_of_the_recall_that_began_it() -> None:
    recall = TwoRecalls()

    async def measure() -> int:
        async with recall._borrowed(recall.only):
            await asyncio.Event().wait()
        return 0

    async def ask() -> None:
        value = CachedValue(measure, 0.0, clock=iter([0.0, 1.0, 2.0, 3.0]).__next__)
        value.assume(1)
        await value.get()
        await asyncio.Event().wait()

    assert await recall._within(0.1, ask()) is None
    assert recall.only.given_up == 0
    await recall.close()
