"""A cached value is measured once for all callers and renewed in the background."""

import asyncio
import gc
import weakref
from traceback import walk_tb

import pytest

from memory_recall.errors import DatabaseUnreachable
from memory_recall.search.cached_value import CachedValue


class _Query:
    """A query of which a test sees whether it is still held."""


async def test_concurrent_first_callers_share_one_measurement() -> None:
    """A cold start under load measures once."""
    calls = 0

    async def measure() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return calls

    snapshot = CachedValue(measure, 10)
    assert await asyncio.gather(*(snapshot.get() for _ in range(5))) == [1] * 5


async def test_concurrent_first_callers_share_one_failure() -> None:
    """A slow server is asked once by all that wait, and once more by who comes after them."""
    calls = 0

    async def measure() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise DatabaseUnreachable("slow")

    snapshot = CachedValue(measure, 10)
    for expected in (1, 2):
        failures = await asyncio.gather(*(snapshot.get() for _ in range(5)), return_exceptions=True)
        assert {type(failure) for failure in failures} == {DatabaseUnreachable}
        assert calls == expected


async def test_the_failure_of_a_caller_names_no_variable_of_another() -> None:
    """Those variables hold the queries of others, and whoever catches an error may log or keep it."""

    async def measure() -> int:
        await asyncio.sleep(0)
        raise DatabaseUnreachable("slow", "Wait.", sqlstate="57014")

    snapshot = CachedValue(measure, 10)

    async def recall(query: str) -> DatabaseUnreachable:
        try:
            await snapshot.get()
        except DatabaseUnreachable as error:
            return error
        raise AssertionError(query)

    queries = ["first", "second", "third"]
    failures = await asyncio.gather(*(recall(query) for query in queries))
    for failure, query in zip(failures, queries, strict=True):
        frames = [frame.f_locals for frame, _ in walk_tb(failure.__traceback__)]
        assert [found["query"] for found in frames if "query" in found] == [query]
        assert (failure.message, failure.remedy, failure.sqlstate) == ("slow", "Wait.", "57014")


async def test_a_failure_that_is_remembered_keeps_no_variable_of_its_caller() -> None:
    async def measure() -> int:
        raise DatabaseUnreachable("away")

    snapshot, query = CachedValue(measure, 10), _Query()

    async def recall(_query: _Query) -> int:
        return await snapshot.get()

    with pytest.raises(DatabaseUnreachable):
        await recall(query)
    kept = weakref.ref(query)
    del query
    gc.collect()
    assert kept() is None


async def test_an_old_measurement_serves_while_it_is_renewed_and_survives_a_failure() -> None:
    """No caller waits for a renewal, and the last value stays while the database is unreachable."""
    now = 0.0
    results: list[int | Exception] = [1, DatabaseUnreachable("away"), 2]

    async def measure() -> int:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    snapshot = CachedValue(measure, 10, clock=lambda: now)
    seen = [await snapshot.get()]
    for _ in range(4):
        now += 11
        seen.append(await snapshot.get())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not results:
            break
    assert seen == [1, 1, 1]
    assert await snapshot.get() == 2


async def test_a_forgotten_measurement_is_made_anew() -> None:
    """A caller that finds the value wrong discards it."""
    values = iter([1, 2])

    async def measure() -> int:
        return next(values)

    snapshot = CachedValue(measure, 1e9)
    assert await snapshot.get() == 1
    snapshot.forget()
    assert await snapshot.get() == 2


async def test_an_assumed_value_serves_until_the_measurement_is_repeated_in_the_background() -> None:
    """Nobody waits again for a measurement that has failed, nor is it repeated for each caller."""
    now, calls = 0.0, 0

    async def measure() -> int:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise DatabaseUnreachable("slow")
        return 2

    snapshot = CachedValue(measure, 300, clock=lambda: now)
    with pytest.raises(DatabaseUnreachable):
        await snapshot.get()
    assert snapshot.assume(1) == 1
    for seconds, expected in ((29, (1, 1)), (2, (1, 2)), (29, (1, 2)), (2, (2, 3)), (299, (2, 3))):
        now += seconds
        await snapshot.get()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await snapshot.get(), calls) == expected
    assert snapshot.assume(1) == 2
