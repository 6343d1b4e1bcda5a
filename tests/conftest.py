"""The distribution of tests over several workers."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

CLUSTER = "tests/e2e/"


class ModuleScheduling(LoadScopeScheduling):
    """Gives all cluster tests to one worker, since they share a cluster, and the tests of a module to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return CLUSTER if nodeid.startswith(CLUSTER) else nodeid.split("::", maxsplit=1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModuleScheduling:
    """Replace the scheduler of xdist; pytest-xdist calls this hook."""
    return ModuleScheduling(config, log)
