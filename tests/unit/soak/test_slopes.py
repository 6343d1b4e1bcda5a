"""What grows all the time is named, and what a fault takes for a while is not."""

import pytest

from tests.soak.slopes import growing

SLACK = {"memory": 10.0}


def series(*values: float, every: float = 60.0) -> list[tuple[float, float]]:
    return [(number * every, value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ([100.0 + 5 * step for step in range(30)], True),
        ([100.0] * 30, False),
        ([100.0] * 10 + [300.0] * 10 + [100.0] * 10, False),
        ([100.0] * 20 + [105.0] * 10, False),
        ([10.0] * 10 + [12.0] * 10 + [19.0] * 10, False),
        ([100.0 + 5 * step for step in range(11)], False),
    ],
    ids=["steadily", "level", "for a while", "a little", "within the slack", "too few samples"],
)
def test_a_series_grows_only_if_its_last_third_is_well_above_its_first(values: list[float], grows: bool) -> None:
    assert bool(growing({"memory of operator": series(*values)}, SLACK)) is grows


def test_a_run_of_two_minutes_is_too_short_to_tell_growth_from_a_beginning() -> None:
    """`make e2e-local` failed on dead rows that a model swap had left a minute before its end."""
    assert growing({"dead rows": series(*(100.0 * step for step in range(21)), every=6.0)}, SLACK) == []


def test_what_grows_is_named_with_its_levels() -> None:
    assert growing({"files": series(*([1.0] * 4 + [2.0] * 4 + [3.0] * 4))}, SLACK) == ["files: 1, 2, 3"]
