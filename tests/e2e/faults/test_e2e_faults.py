"""What breaks while rows are being embedded costs nothing but time: it ends Ready, nothing lost, nothing leaked.

The deaths of the primary and of the operator have modules of their own.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import open_tenant, slug
from tests.e2e.faults.injected_faults import assert_no_row_lost, component, kill, wait_until_under_way
from tests.support.cluster.memories import rows, sensitive
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
MANY = rows(600)
DUE = len(MANY) - sensitive(MANY)
# With a share of a processor the rows take a while, and a pod that is killed has not done its work before it ends.
SLOW = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}


@pytest.fixture
def tenant(fragile: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A namespace, and a database on the Postgres cluster that other workers do not use."""
    yield from open_tenant(fragile, request, slug(request.node.name))


def test_the_deaths_of_the_embedder_and_of_the_backfill_pod_in_one_run_only_delay(tenant: Tenant) -> None:
    tenant.store(MANY)
    tenant.apply_index(embedder__resources=SLOW)
    wait_until_under_way(tenant, DUE)
    kill(tenant, "-n", tenant.name, "pods", "-l", component("backfill"))
    before = tenant.embedded()
    eventually(tenant.embedded, lambda count: count > before, what="the Job's next pod at work")
    kill(tenant, "-n", tenant.name, "pods", "-l", component("embedder"))
    assert_no_row_lost(tenant, MANY)
