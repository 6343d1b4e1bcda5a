"""An embedder that asks for a GPU is passed through to the scheduler untouched, and its absence is named."""

from collections.abc import Callable, Iterator

import pytest

from devcluster.cluster import Cluster
from tests.e2e.tenants import Tenant
from tests.e2e.texts import rows

pytestmark = pytest.mark.cluster
GPU = "nvidia.com/gpu"


@pytest.fixture
def gpu(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Lets a node offer one GPU to the scheduler; it is taken away again."""
    yield lambda: cluster.patch_extended_resource(GPU, 1)
    cluster.patch_extended_resource(GPU, None)


def test_a_missing_gpu_is_named_and_its_arrival_is_enough_to_go_on(tenant: Tenant, gpu: Callable[[], None]) -> None:
    tenant.store(rows(12))
    tenant.apply_index(embedder__resources={"limits": {GPU: "1"}})
    condition = tenant.wait_condition("EmbedderReady", "Unschedulable")
    assert GPU in condition.message
    assert tenant.view().stalled is not None
    gpu()
    tenant.wait_ready()


def test_layers_asked_for_on_a_gpu_that_is_not_there_do_not_run_on_the_cpu_in_silence(tenant: Tenant) -> None:
    tenant.store(rows(12))
    tenant.apply_index(embedder__gpuLayers=-1)
    condition = tenant.wait_condition("EmbedderReady", "GpuNotUsed")
    assert "gpuLayers" in condition.message
    assert tenant.embedded() == 0
