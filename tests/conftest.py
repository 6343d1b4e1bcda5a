"""The distribution of tests over several workers."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

CLUSTER = "tests/e2e/"
# These replace or restrict the operator of their cluster, or take long; they have a cluster and a worker of their own.
_SECOND_CLUSTER = tuple(
    f"{CLUSTER}test_e2e_{name}.py" for name in ("deletion", "hostile", "lifecycle", "upgrade", "used_rights")
)


class ModuleScheduling(LoadScopeScheduling):
    """Gives the cluster tests to two workers, each with its own cluster, and the tests of other modules to any."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(CLUSTER):
            return CLUSTER + ("second" if nodeid.startswith(_SECOND_CLUSTER) else "first")
        return nodeid.split("::", maxsplit=1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModuleScheduling:
    """Replace the scheduler of xdist; pytest-xdist calls this hook."""
    return ModuleScheduling(config, log)
