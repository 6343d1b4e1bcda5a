"""The operator is upgraded under an object that 5ed9431's operator brought to Ready, while both libraries recall."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_bench.operator.platform import Platform
from memory_bench.operator.tenants import Tenant
from memory_bench.upgrade.on_cluster import (
    UpgradeNamespace,
    Versions,
    install_former,
    install_present,
    load_versions,
    upgrade_object,
)

pytestmark = pytest.mark.cluster
REFUSED = "former library: degraded: EmbedderFailed"
NOT_ASKED_AFTERWARDS = "former library: degraded: EmbedderCircuitOpen"


@pytest.fixture
def former_operator(platform: Platform, tmp_path: Path) -> Iterator[Versions]:
    """The cluster's operator is that of 5ed9431, with its own chart; the present one returns afterwards."""
    cluster = platform.postgres.cluster
    versions = load_versions(cluster, tmp_path)
    install_former(cluster, versions)
    yield versions
    install_present(cluster, versions)


async def test_an_object_that_was_ready_under_the_former_operator_reaches_head_without_a_failing_recall(
    former_operator: Versions, tenant: Tenant
) -> None:
    """But for one request at most, on a connection that a former client keeps to a former pod until that pod stops."""
    outcome = await upgrade_object(UpgradeNamespace(tenant.postgres, tenant.name), former_operator, "object-ready")
    assert outcome.problem is None
    assert (outcome.rows_lost, outcome.vectors_lost) == (0, 0)
    assert outcome.recall_errors == len(outcome.faults), outcome.faults
    assert set(outcome.faults) <= {REFUSED, NOT_ASKED_AFTERWARDS}, outcome.faults
    assert outcome.faults.count(REFUSED) <= 1, outcome.faults
    assert outcome.recalls > 0
