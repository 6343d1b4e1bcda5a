"""A failed call is repeated as often and for as long as its caller allows, and no error is changed on the way."""

import time

import pytest

from memory_recall.retrying import Backoff, caused_by, retry

AT_ONCE = Backoff(first=0, longest=0, jitter=0)


class Flaky:
    """Fails with the given errors, one a call, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


async def test_an_accepted_error_is_retried_and_reported() -> None:
    first, second = ConnectionError("one"), ConnectionError("two")
    work, reported = Flaky(first, second), []
    answer = await retry(
        work, on=caused_by(ConnectionError), give_up_after=60, backoff=AT_ONCE, on_retry=reported.append
    )
    assert (answer, work.calls, reported) == ("done", 3, [first, second])


async def test_any_other_error_is_raised_at_once() -> None:
    failure = ValueError("two")
    work = Flaky(ConnectionError("one"), failure)
    with pytest.raises(ValueError, match="two") as raised:
        await retry(work, on=caused_by(ConnectionError), give_up_after=None, backoff=AT_ONCE)
    assert raised.value is failure
    assert work.calls == 2


async def test_the_number_of_attempts_is_bounded() -> None:
    work = Flaky(*(ConnectionError(str(number)) for number in range(9)))
    with pytest.raises(ConnectionError, match="2"):
        await retry(work, on=caused_by(ConnectionError), give_up_after=None, attempts=3, backoff=AT_ONCE)
    assert work.calls == 3


async def test_the_time_limit_begins_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that succeeded for hours before its connection was lost has the whole limit to recover."""
    now = 0.0

    async def work() -> None:
        nonlocal now
        now += 100.0
        raise ConnectionError(str(now))

    monkeypatch.setattr(time, "monotonic", lambda: now)
    with pytest.raises(ConnectionError, match=r"400\.0"):
        await retry(work, on=caused_by(ConnectionError), give_up_after=250, backoff=AT_ONCE)


async def test_the_decision_can_name_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay that a server asks for is kept, and lengthened by at most a fifth."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    await retry(Flaky(ConnectionError("busy")), on=lambda _error: 7.0, give_up_after=None)
    assert len(slept) == 1
    assert 7.0 <= slept[0] <= 8.4


async def test_delays_grow_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    work = Flaky(*(ConnectionError() for _ in range(5)))
    await retry(work, on=caused_by(ConnectionError), give_up_after=None, backoff=Backoff(1, 5, jitter=0))
    assert slept == [1, 2, 4, 5, 5]
