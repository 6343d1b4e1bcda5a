"""The operator scales an embedder by the queued work: to nothing, back at a recall, and up under load."""

from tests.support.cluster.tenants import Tenant
from tests.world.parts import World
from tests.world.scaled import EXPECTED, create_index, drive

_SCALING = {"minReplicas": 0, "maxReplicas": 2, "targetQueueSeconds": 3, "scaleDownDelaySeconds": 10}


def prove_own_scaling(world: World) -> list[int]:
    """Return the numbers of ready pods as they were seen one after the other."""
    platform = world.platform
    tenant = Tenant(platform.postgres, "own-scaling", platform.image)
    pods = create_index(tenant, _SCALING)
    seen = drive(tenant, pods)
    assert seen == EXPECTED, f"the numbers of ready pods were {seen}, and not {EXPECTED}"
    tenant.remove()
    return seen
