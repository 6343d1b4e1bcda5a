"""What grows all the time is named, and what a fault takes for a while is not."""

import pytest

from tests.soak.slopes import growing

SLACK = {"memory": 10.0}


def series(*values: float) -> list[tuple[float, float]]:
    return list(enumerate(values))  # type: ignore[arg-type]


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


def test_what_grows_is_named_with_its_levels() -> None:
    assert growing({"files": series(*([1.0] * 4 + [2.0] * 4 + [3.0] * 4))}, SLACK) == ["files: 1, 2, 3"]
