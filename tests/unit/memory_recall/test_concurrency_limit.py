"""As many queries are under way at an embedder as it answers in time."""

import heapq
import random
from collections.abc import Callable
from itertools import count

import pytest

from memory_recall.search.concurrency_limit import Begun, ConcurrencyLimit

BUDGET = 0.150
SOON = 0.01
MOST = 64


def begin_all(limit: ConcurrencyLimit) -> list[Begun]:
    """Begin queries until none more may be under way, and return them."""
    found: list[Begun] = []
    while (one := limit.begin()) is not None:
        found.append(one)
    return found


def most_under_way(limit: ConcurrencyLimit) -> int:
    """Return how many queries may be under way, while none is."""
    queries = len(begin_all(limit))
    for _ in range(queries):
        limit.end()
    return queries


def halved(times: int) -> ConcurrencyLimit:
    """Return a limit that was halved so often, with nothing under way."""
    limit = ConcurrencyLimit(BUDGET)
    for _ in range(times):
        queries = begin_all(limit)
        for one in queries:
            limit.late(one)
            limit.end()
    return limit


def answer(limit: ConcurrencyLimit, queries: int, seconds: float) -> None:
    """Have so many queries answered one after the other, after so long each."""
    for _ in range(queries):
        assert limit.begin()
        limit.end()
        limit.answered(seconds)


def test_no_more_are_under_way_than_the_limit() -> None:
    """The next may begin when one has ended."""
    limit = ConcurrencyLimit(BUDGET)
    assert len(begin_all(limit)) == MOST
    limit.end()
    assert len(begin_all(limit)) == 1


def test_all_that_are_late_together_halve_the_limit_once() -> None:
    """They waited for each other, so they tell one thing."""
    assert most_under_way(halved(1)) == MOST // 2


def test_one_query_may_always_be_asked() -> None:
    """However often the embedder was late; else nobody would learn that it answers again."""
    assert most_under_way(halved(20)) == 1


def test_a_query_that_was_asked_alone_does_not_lower_the_limit() -> None:
    """An embedder that is too slow for one query is not asked too much."""
    limit = ConcurrencyLimit(BUDGET)
    for _ in range(20):
        one = limit.begin()
        assert one
        limit.late(one)
        limit.end()
    assert most_under_way(limit) == MOST


def test_a_late_query_tells_whether_others_were_answered_meanwhile() -> None:
    """If so, the embedder is busy; if not, it may be gone."""
    limit = ConcurrencyLimit(BUDGET)
    first, second = limit.begin(), limit.begin()
    assert first
    assert second
    assert not limit.late(first)
    limit.end()
    limit.answered(SOON)
    assert limit.late(second)


def test_a_full_queue_halves_the_limit_and_tells_whether_others_are_under_way() -> None:
    """With none of ours, it is others who fill it."""
    limit = ConcurrencyLimit(BUDGET)
    first, second = limit.begin(), limit.begin()
    assert first
    assert second
    limit.end()
    assert limit.refused(second)
    limit.end()
    assert not limit.refused(first)
    assert most_under_way(limit) == MOST // 2


def test_a_limit_taken_anew_has_nothing_under_way() -> None:
    """The number that was learned stays."""
    limit = halved(2)
    begin_all(limit)
    assert most_under_way(limit.anew()) == MOST // 4


def test_answers_that_came_soon_raise_the_limit_up_to_a_bound() -> None:
    """Each round of them by one; those that came late in the budget do not, as more would not be in time."""
    limit = halved(20)
    answer(limit, 7, SOON)
    assert most_under_way(limit) == 4
    answer(limit, 20_000, 0.6 * BUDGET)
    assert most_under_way(limit) == 4
    answer(limit, 20_000, SOON)
    assert most_under_way(limit) == MOST


def test_an_embedder_that_is_never_quick_is_asked_more_all_the_same() -> None:
    """One far away takes the same time however many are asked, so its answers are compared with its soonest."""
    limit = halved(20)
    answer(limit, 1, 0.6 * BUDGET)
    answer(limit, 20_000, 0.8 * BUDGET)
    assert most_under_way(limit) == MOST


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
            embedder.ask(now, one, limit)
    assert embedder.answered >= 0.8 * 60 * min(rate, 50)


class Embedder:
    """Computes queries one by one, each in the same time, and also those that nobody waits for any more."""

    def __init__(self, seconds_each: float) -> None:
        self.answered = 0
        self._seconds_each = seconds_each
        self._free_at = 0.0
        self._numbers = count()
        self._to_come: list[tuple[float, int, Callable[[], object]]] = []

    def ask(self, now: float, one: Begun, limit: ConcurrencyLimit) -> None:
        """Ask for one query."""
        self._free_at = max(self._free_at, now) + self._seconds_each
        seconds = self._free_at - now

        def in_time() -> None:
            self.answered += 1
            limit.answered(seconds)

        if seconds < BUDGET:
            self._later(self._free_at, in_time)
        else:
            self._later(now + BUDGET, lambda: limit.late(one))
        self._later(min(self._free_at, now + 4 * BUDGET), limit.end)

    def work_until(self, now: float) -> None:
        """Let happen what happens until then."""
        while self._to_come and self._to_come[0][0] <= now:
            heapq.heappop(self._to_come)[2]()

    def _later(self, when: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._to_come, (when, next(self._numbers), what))
