"""An object converges whichever call of its operator fails; the benchmark tries forty times as many calls."""

import pytest

from tests.support.cluster.faults.points import SHARE
from tests.support.cluster.faults.run import run_fault_points
from tests.support.cluster.platform import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]

_SLOTS = 2  # operators and databases side by side


def test_an_object_becomes_ready_and_goes_after_one_call_of_its_operator_has_failed(platform: Platform) -> None:
    """Calls that are refused, not answered, or carried out while the operator is killed, from its start to the end."""
    platform.start_embedder()
    found = run_fault_points(platform, SHARE / 40, print, slots=_SLOTS)
    assert found["not_converged"] == []
    assert found["converged"] == found["points"] >= 4
