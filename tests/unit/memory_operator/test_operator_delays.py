"""The growth of delays between repeated attempts."""

import pytest

from memory_operator.reconcile.delays import doubled


@pytest.mark.parametrize(("times", "seconds"), [(0, 5), (1, 10), (2, 20), (5, 160), (6, 300), (7, 300), (100_000, 300)])
def test_a_delay_doubles_from_the_first_up_to_the_longest_however_often(times: int, seconds: float) -> None:
    assert doubled(5, 300, times) == seconds


def test_no_delay_is_longer_than_the_longest_even_the_first() -> None:
    assert doubled(10, 3, 0) == 3
