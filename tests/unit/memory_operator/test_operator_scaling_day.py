"""The scaling decision over a day of load: nights at zero, bursts, an import by HTTP, and a table to be filled."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.unit.memory_operator.load_day import STEP_SECONDS, arrivals
from tests.unit.memory_operator.scaling_simulation import (
    DELAY_SECONDS,
    LOADING_SECONDS,
    MAX_REPLICAS,
    PARALLELISM,
    TARGET_SECONDS,
    Moment,
    Simulation,
)

SETTLED_SECONDS = 30  # between two looks at an object that is settled
ZERO_SECONDS = 10  # between two looks at an object without pods
NIGHT = range(2 * 3600, 6 * 3600)


@pytest.fixture(scope="module")
def day() -> list[Moment]:
    """Every step of the day."""
    return Simulation().run(arrivals())


def longest(day: list[Moment], holds: Callable[[Moment], bool]) -> int:
    """Return the longest uninterrupted time for which the predicate was true, in seconds."""
    most = present = 0
    for moment in day:
        present = present + STEP_SECONDS if holds(moment) else 0
        most = max(most, present)
    return most


def test_the_number_of_pods_never_exceeds_the_maximum_and_reaches_it(day: list[Moment]) -> None:
    assert max(moment.wanted for moment in day) == MAX_REPLICAS


def test_no_number_falls_before_the_delay_has_passed_since_it_last_rose(day: list[Moment]) -> None:
    rose = -DELAY_SECONDS
    for before, after in pairwise(day):
        if after.wanted > before.wanted:
            rose = after.second
        if after.wanted < before.wanted:
            assert after.second - rose >= DELAY_SECONDS


def test_the_queue_is_within_its_target_again_soon_after_it_grows_unless_every_pod_is_there(day: list[Moment]) -> None:
    over = longest(day, lambda moment: moment.queue_seconds > TARGET_SECONDS and moment.ready < MAX_REPLICAS)
    assert over <= SETTLED_SECONDS + LOADING_SECONDS + TARGET_SECONDS + 2 * STEP_SECONDS


def test_no_pod_runs_at_night(day: list[Moment]) -> None:
    assert {moment.wanted for moment in day if moment.second in NIGHT} == {0}


def test_a_query_that_finds_no_pod_wakes_one(day: list[Moment]) -> None:
    longest_wait = ZERO_SECONDS + LOADING_SECONDS + 2 * STEP_SECONDS
    missed = [
        moment.second for moment in day if moment.missed_queries and moment.second < day[-1].second - longest_wait
    ]
    assert missed
    ready = {moment.second for moment in day if moment.ready}
    for second in missed:
        assert any(second + wait in ready for wait in range(0, longest_wait + 1, STEP_SECONDS))


def test_a_backfill_has_a_pod_for_each_of_its_workers_and_ends(day: list[Moment]) -> None:
    filling = [moment for moment in day if moment.pending_rows >= 1000]
    assert min(moment.wanted for moment in filling[SETTLED_SECONDS // STEP_SECONDS + 1 :]) >= PARALLELISM
    assert day[-1].pending_rows < 10
