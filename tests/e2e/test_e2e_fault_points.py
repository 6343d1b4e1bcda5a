"""A tenth of the fault points of the operator's benchmark: no call that fails once keeps an object from its ends."""

from collections.abc import Iterator
from typing import Any

import pytest

from memory_bench.operator.faults.part import run_fault_points
from memory_bench.operator.manifests import EMBEDDER_NAMESPACE
from memory_bench.operator.platform import Platform

pytestmark = pytest.mark.cluster
SHARE, SLOTS, LEAST = 0.1, 6, 15


@pytest.fixture(scope="module")
def found(platform: Platform) -> Iterator[dict[str, Any]]:
    """What became of the lives."""
    platform.start_embedder()
    said: list[str] = []
    yield run_fault_points(platform, SHARE, said.append, SLOTS)
    platform.cluster.kubectl("delete", "namespace", EMBEDDER_NAMESPACE, "--wait=false")


def test_whatever_call_fails_once_the_object_becomes_ready_and_is_gone_after_its_deletion(
    found: dict[str, Any],
) -> None:
    assert found["not_converged"] == []
    assert found["converged"] == found["points"] >= LEAST
