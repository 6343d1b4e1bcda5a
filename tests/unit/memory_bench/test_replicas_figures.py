"""The figures of the replicas benchmark are those of its measurements, and it names what bounds two instances."""

import pytest

from memory_bench.replicas.command import figures, what_binds
from memory_bench.replicas.measure import ONE, STANDBY, TWO, Measured


def test_the_ratio_is_that_of_the_medians_and_costs_are_those_of_all_rounds() -> None:
    one = [Measured(count, 10.0, 8.0, 0.0, 1.0) for count in (900, 1000, 5000)]
    two = [Measured(1700, 10.0, 8.0, 8.0, 2.0)] * 3
    standby = [Measured(800, 10.0, 0.4, 8.0, 1.0)] * 3
    found = figures({ONE: one, TWO: two, STANDBY: standby}, cores=2)
    assert found.pop("binds")
    assert found == {
        "recalls_per_second_one": 100.0,
        "recalls_per_second_two": 170.0,
        "two_vs_one": 1.7,
        "two_vs_one_without_clients": pytest.approx(2 * (24 / 6900) / (16 / 1700), abs=0.01),
        "server_ms_one": pytest.approx(24e3 / 6900, abs=0.01),
        "server_ms_two": 9.41,
        "client_ms_two": 1.18,
        "primary_ms_of_a_recall_on_the_standby": 0.5,
    }


@pytest.mark.parametrize(
    ("two", "cores", "what"),
    [
        (Measured(1, 10.0, 8.5, 8.5, 2.5), 2, "the two cores, which the clients share"),
        (Measured(1, 10.0, 9.5, 9.2, 2.5), 4, "the servers' cores"),
        (Measured(1, 10.0, 6.0, 6.0, 9.8), 4, "the one process of the clients"),
        (Measured(1, 10.0, 3.0, 9.5, 1.0), 4, "no processor"),
        (Measured(1, 10.0, 5.0, 5.0, 1.0), 2, "no processor"),
    ],
    ids=["two cores", "four cores", "clients", "one server", "a machine that others use"],
)
def test_what_binds_is_told_by_the_processor_time_that_was_used(two: Measured, cores: int, what: str) -> None:
    assert what_binds(two, cores=cores).startswith(what)
