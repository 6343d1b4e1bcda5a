"""The distribution of tests over several workers, and what tests of several packages need."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

CLUSTER_TESTS = "tests/e2e/"
# A second worker runs these beside the other cluster tests, and takes about as long as those that need not run alone.
SECOND_WORKER = (
    "test_e2e_hostile", "test_e2e_hostile_tenant", "test_e2e_bad_input", "test_e2e_model_fetch", "test_e2e_privacy",
    "faults/test_e2e_failover", "faults/test_e2e_faults",
)  # fmt: skip
ENGINE_TESTS = "tests/integration/memory_embedder/"

# How long an example takes is not judged, because machines differ.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


class ModuleScheduling(LoadScopeScheduling):
    """Gives each module to one worker, and all cluster tests to two workers, since they share one cluster.

    One worker runs all tests with the embedder's engine, so that their model files and their server are made once.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.split("::", maxsplit=1)[0]
        if module.startswith(ENGINE_TESTS):
            return ENGINE_TESTS
        if not module.startswith(CLUSTER_TESTS):
            return module
        name = module.removeprefix(CLUSTER_TESTS).removesuffix(".py")
        return f"{CLUSTER_TESTS} {'second' if name in SECOND_WORKER else 'first'} worker"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModuleScheduling:
    """Replace the scheduler of xdist; pytest-xdist calls this hook."""
    return ModuleScheduling(config, log)


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what collection made.

    It spent 3.8 of 38 processor seconds of the operator's unit tests on that, and spends .8 so.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
async def complaints() -> AsyncIterator[list[str]]:
    """What the event loop complains about, such as an exception that nobody retrieved; the test must leave it empty."""
    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(str(context)))
    yield heard
    gc.collect()
    await asyncio.sleep(0)
    assert heard == []
