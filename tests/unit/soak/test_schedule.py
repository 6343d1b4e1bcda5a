"""A schedule of faults follows from its seed, and has each kind as often as the others."""

import itertools
from collections import Counter

import pytest

from tests.soak.faults import FAULTS
from tests.soak.schedule import LONGEST_SECONDS, SHORTEST_SECONDS, schedule

KINDS = list(FAULTS)


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    plans = [schedule(KINDS, seconds=3600, count=360, seed=seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


@pytest.mark.parametrize("seed", range(5))
def test_an_hour_has_each_kind_at_least_five_times_and_many_faults_at_once(seed: int) -> None:
    planned = schedule(KINDS, seconds=3600, count=360, seed=seed)
    assert min(Counter(one.kind for one in planned).values()) >= 5
    together = sum(one.at == other.at for one, other in itertools.pairwise(planned))
    assert together > 50


@pytest.mark.parametrize("seed", range(5))
def test_every_fault_lasts_as_it_should_and_ends_with_the_run(seed: int) -> None:
    for one in schedule(KINDS, seconds=120, count=40, seed=seed):
        assert 0 < one.at < 120
        assert one.seconds <= LONGEST_SECONDS
        assert one.seconds >= SHORTEST_SECONDS or one.at + one.seconds == pytest.approx(120)
        assert one.at + one.seconds <= 120 + 1e-6
