"""An object converges whichever call of its operator fails, tried for a tenth of what the benchmark tries."""

import os
from collections.abc import Iterator

import pytest

import devcluster
from memory_bench.operator.faults.part import run_fault_points
from memory_bench.operator.faults.points import SHARE
from memory_bench.operator.platform import PERMITTED, Platform, create_platform

pytestmark = [pytest.mark.cluster, pytest.mark.own_cluster]

_SLOTS = 5  # operators and databases side by side


@pytest.fixture
def own_platform() -> Iterator[Platform]:
    """A platform of the test's own, whose operator it may stop while other tests use theirs."""
    with devcluster.start(f"e2e-fault-points-{os.getpid()}") as cluster:
        yield create_platform(cluster, settings=PERMITTED)


def test_an_object_becomes_ready_and_goes_after_one_call_of_its_operator_has_failed(own_platform: Platform) -> None:
    """Calls that are refused, not answered, or carried out while the operator is killed, from its start to the end."""
    own_platform.start_embedder()
    found = run_fault_points(own_platform, SHARE / 10, print, slots=_SLOTS)
    assert found["not_converged"] == []
    assert found["converged"] == found["points"] >= 15
