"""The operator is upgraded under an object that 5ed9431's operator brought to Ready, while both libraries recall."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import devcluster
from memory_bench.upgrade.on_cluster import (
    UpgradeNamespace,
    install_former,
    upgrade_object,
)
from memory_bench.upgrade.versions import Versions, load_versions

REFUSED = "former library: degraded: EmbedderFailed"
NOT_ASKED_AFTERWARDS = "former library: degraded: EmbedderCircuitOpen"


@pytest.fixture
def former(tmp_path: Path) -> Iterator[tuple[UpgradeNamespace, Versions]]:
    """A namespace of a cluster of our own, whose operator is that of 5ed9431 with its own chart."""
    with devcluster.start(f"delivery-upgrade-{os.getpid()}") as cluster:
        devcluster.install_cnpg(cluster)
        versions = load_versions(cluster, tmp_path)
        namespace = UpgradeNamespace(devcluster.create_postgres(cluster), "upgraded")
        install_former(cluster, versions)
        namespace.create()
        yield namespace, versions


@pytest.mark.finding("D30")
@pytest.mark.timeout(1800)
async def test_an_object_that_was_ready_under_the_former_operator_reaches_head_without_a_failing_recall(
    former: tuple[UpgradeNamespace, Versions],
) -> None:
    """But for one request at most, on a connection that a former client keeps to a former pod until that pod stops."""
    outcome = await upgrade_object(*former, "object-ready")
    assert outcome.problem is None
    assert (outcome.rows_lost, outcome.vectors_lost) == (0, 0)
    assert outcome.recall_errors == len(outcome.faults), outcome.faults
    assert set(outcome.faults) <= {REFUSED, NOT_ASKED_AFTERWARDS}, outcome.faults
    assert outcome.faults.count(REFUSED) <= 1, outcome.faults
    assert outcome.recalls > 0
