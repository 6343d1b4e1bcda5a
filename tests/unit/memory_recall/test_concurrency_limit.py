"""As many queries are under way at an embedder as it answers in time."""

import heapq
import random
from collections import deque
from itertools import count

import pytest

from memory_recall.search.concurrency_limit import Begun, ConcurrencyLimit

BUDGET = 0.150
SOON = 0.01


def begun(limit: ConcurrencyLimit, most: int = 1000) -> list[Begun]:
    """Begin queries until none more may be under way, and return them."""
    found: list[Begun] = []
    while len(found) < most and (one := limit.begin()) is not None:
        found.append(one)
    return found


def test_no_more_are_under_way_than_the_limit() -> None:
    """The next may begin when one has ended."""
    limit = ConcurrencyLimit(BUDGET)
    assert len(begun(limit)) == 100
    limit.end()
    assert len(begun(limit)) == 1


def test_all_that_are_late_together_halve_the_limit_once() -> None:
    """They waited for each other, so they tell one thing."""
    limit = ConcurrencyLimit(BUDGET)
    for one in begun(limit):
        limit.end()
        limit.late(one)
    assert len(begun(limit)) == 50


def test_one_query_may_always_be_asked() -> None:
    """However often the embedder was late; else nobody would learn that it answers again."""
    assert len(begun(lowered())) == 1


def test_a_late_query_tells_whether_others_were_answered_meanwhile() -> None:
    """If so, the embedder is busy; if not, it may be gone."""
    limit = ConcurrencyLimit(BUDGET)
    first, second = begun(limit, most=2)
    limit.end()
    limit.answered(SOON)
    limit.end()
    assert limit.late(second)
    (alone,) = begun(limit, most=1)
    limit.end()
    assert not limit.late(alone)
    assert first == second, "nothing had happened between them"


def lowered() -> ConcurrencyLimit:
    """Return a limit of one, with nothing under way."""
    limit = ConcurrencyLimit(BUDGET)
    for _ in range(20):
        (one,) = begun(limit, most=1)
        limit.end()
        limit.late(one)
    return limit


def answer(limit: ConcurrencyLimit, queries: int, seconds: float) -> int:
    """Have so many queries answered after so long, with as many under way as may be; return how many that are."""
    under_way = len(begun(limit))
    for _ in range(queries):
        limit.end()
        limit.answered(seconds)
        under_way += len(begun(limit)) - 1
    for _ in range(under_way):
        limit.end()
    return under_way


def test_answers_that_came_soon_raise_the_limit_up_to_a_bound() -> None:
    """Each round of them by one; those that came late in the budget do not, as more would not be in time."""
    limit = lowered()
    assert answer(limit, 7, SOON) == 4
    assert answer(limit, 20_000, 0.6 * BUDGET) == 4
    assert answer(limit, 20_000, SOON) == 100


def test_answers_one_after_the_other_do_not_raise_the_limit() -> None:
    """They say nothing about as many at a time."""
    limit = lowered()
    answer(limit, 50, SOON)
    before = len(begun(limit))
    for _ in range(before):
        limit.end()
    for _ in range(1000):
        begun(limit, most=1)
        limit.end()
        limit.answered(SOON)
    assert len(begun(limit)) == before > 4


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("rate", [40, 60, 100, 200, 1000])
def test_an_embedder_that_is_asked_too_much_answers_most_of_what_it_can(rate: int, processes: int) -> None:
    """Of 50 queries a second that it computes one by one, at random times and from random processes."""
    embedder = Embedder(seconds_each=1 / 50)
    limits = [ConcurrencyLimit(BUDGET) for _ in range(processes)]
    dice = random.Random(1)  # noqa: S311 - the same in every run
    now = 0.0
    for _ in range(60 * rate):
        now += dice.expovariate(rate)
        embedder.work_until(now)
        limit = dice.choice(limits)
        if (one := limit.begin()) is not None:
            embedder.waiting.append((now, one, limit))
    assert embedder.answered >= 0.85 * 60 * min(rate, 50)


class Embedder:
    """Computes queries one by one, in a time of its own; whoever has given up by then is left out."""

    def __init__(self, seconds_each: float) -> None:
        self.waiting: deque[tuple[float, Begun, ConcurrencyLimit]] = deque()
        self.answered = 0
        self._seconds_each = seconds_each
        self._free_at = 0.0
        self._numbers = count()
        self._ends: list[tuple[float, int, float, Begun, ConcurrencyLimit]] = []

    def work_until(self, now: float) -> None:
        """Begin all that waits as soon as may be, and end what has ended."""
        while self.waiting and (begins := max(self._free_at, self.waiting[0][0])) <= now:
            came, one, limit = self.waiting.popleft()
            given_up = begins >= came + BUDGET
            self._free_at = begins if given_up else begins + self._seconds_each
            seconds = min(self._free_at - came, BUDGET)
            heapq.heappush(self._ends, (came + seconds, next(self._numbers), seconds, one, limit))
        while self._ends and self._ends[0][0] <= now:
            _, _, seconds, one, limit = heapq.heappop(self._ends)
            limit.end()
            if seconds < BUDGET:
                self.answered += 1
                limit.answered(seconds)
            else:
                limit.late(one)
