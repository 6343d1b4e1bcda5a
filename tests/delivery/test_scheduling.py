"""A GPU request of the embedder reaches the scheduler unchanged, and a missing GPU is reported."""

from collections.abc import Callable, Iterator

import pytest

from devcluster.cluster import Cluster
from tests.e2e.conftest import open_tenant, slug
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant

pytestmark = pytest.mark.cluster
GPU = "nvidia.com/gpu"


@pytest.fixture
def tenant(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A namespace and a database for one test."""
    yield from open_tenant(platform, request, slug(request.node.name))


@pytest.fixture
def gpu(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Add one GPU to a node until the test ends."""
    yield lambda: cluster.patch_extended_resource(GPU, 1)
    cluster.patch_extended_resource(GPU, None)


def test_a_missing_gpu_is_reported_and_its_arrival_suffices(tenant: Tenant, gpu: Callable[[], None]) -> None:
    tenant.store(rows(12))
    tenant.apply_index(embedder__resources={"limits": {GPU: "1"}})
    condition = tenant.wait_condition("EmbedderReady", "Unschedulable")
    assert GPU in condition.message
    assert tenant.view().stalled is None, "an autoscaler may be about to add it"
    gpu()
    tenant.wait_ready()


def test_gpu_layers_without_a_gpu_are_refused_instead_of_run_on_the_cpu(tenant: Tenant) -> None:
    tenant.store(rows(12))
    tenant.apply_index(embedder__gpuLayers=-1)
    condition = tenant.wait_condition("EmbedderReady", "GpuNotUsed")
    assert "gpuLayers" in condition.message
    assert tenant.embedded() == 0
    # The Deployment's strategy changes with the device, there and back, which the API server must accept.
    tenant.apply_index(embedder__gpuLayers=0)
    tenant.wait_ready()
    tenant.apply_index(embedder__gpuLayers=-1)
    tenant.wait_condition("EmbedderReady", "GpuNotUsed")
