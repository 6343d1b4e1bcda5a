"""One cluster for these tests: real Kubernetes, CloudNativePG, Postgres, and the chart's operator.

`make test` leaves out the folder `faults`, whose tests take long: they kill things, withdraw consents, delete in every
situation, and wait until a whole cluster has recovered. `make test` holds the decisions behind them without a cluster.

A test takes as much of it as it needs: `cluster` is the bare cluster, `platform` adds Postgres and the operator,
`tenant` is a test's own namespace and database. Tests that kill Postgres or pods have another Postgres, `fragile`.
Two workers use the cluster at the same time; a module that is marked `exclusive` changes what all others use, so it
comes after them and runs alone. The cluster ends with the last of these tests, while others may go on: an idle cluster
takes a tenth of a machine. When a test fails, all it touched is described in `build/e2e/<test>`.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import xdist

import devcluster
from devcluster.cluster import Cluster
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.postgres import create_postgres
from tests.e2e import evidence
from tests.e2e.sharing import LONGEST_WAIT_SECONDS, SharedCluster
from tests.support.cluster.platform import PERMITTED, Platform, create_platform
from tests.support.cluster.tenants import Tenant

ROOT = Path(__file__).parents[2]
FAILED = pytest.StashKey[bool]()
ALONE_OR_FIRST = {"master", "gw0"}  # what pytest-xdist calls a process without workers, and the first worker
TEST_SECONDS = 600.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the clusters need before the first test, whose time limit does not allow for compiling Kubernetes.

    Of several workers the first one does so, before it reports what it collected: until then no worker gets a test.
    """
    if session.config.option.collectonly or xdist.get_xdist_worker_id(session) not in ALONE_OR_FIRST:
        return
    if any(item.get_closest_marker("cluster") for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            devcluster.prepare()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record that a test failed, for the fixtures that then save evidence."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]  # pytest's hooks are typed by their results alone
        for node in item.listchain():
            node.stash[FAILED] = True
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests first, and of them last those that need the cluster for themselves.

    The time limit of each allows for waiting for others.
    """
    here = Path(__file__).parent
    items.sort(key=lambda item: (here not in item.path.parents, item.get_closest_marker("exclusive") is not None))
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(LONGEST_WAIT_SECONDS + TEST_SECONDS))


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SharedCluster:
    """The cluster that all workers of this run share, as this worker knows it."""
    own = tmp_path_factory.getbasetemp()
    return SharedCluster(own.parent if hasattr(request.config, "workerinput") else own)


@pytest.fixture(scope="package")
def cluster(shared: SharedCluster) -> Iterator[Cluster]:
    """A fresh cluster that ends with the last of these tests."""
    with shared.opened() as started:
        yield started


@pytest.fixture(scope="package")
def platform(shared: SharedCluster, cluster: Cluster) -> Platform:
    """CloudNativePG, a Postgres cluster, and the operator installed by helm."""
    return shared.platform(cluster, lambda empty: create_platform(empty, settings=PERMITTED))


@pytest.fixture(scope="package")
def fragile(platform: Platform) -> Platform:
    """The platform with another Postgres cluster, which has a replica and which tests may kill beside other workers."""
    postgres = create_postgres(
        platform.cluster, namespace="fragile", name="pg-fragile", instances=2, storage="1Gi", cpu="150m"
    )
    return replace(platform, postgres=postgres)


@pytest.fixture(scope="module", autouse=True)
def turn(request: pytest.FixtureRequest, shared: SharedCluster) -> Iterator[None]:
    """Wait until the module may use the shared cluster, alone if it is marked `exclusive`, else beside other modules.

    pytest makes the fixtures of the package before this one.
    """
    with shared.used(exclusively=request.node.get_closest_marker("exclusive") is not None):
        yield
    shared.finish(request.node.path.stem)


@pytest.fixture
def tenant(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A namespace and a database for one test."""
    yield from open_tenant(platform, request, slug(request.node.name))


def open_tenant(platform: Platform, request: pytest.FixtureRequest, name: str) -> Iterator[Tenant]:
    """Yield a tenant that is removed at the end of the fixture's scope."""
    platform.postgres.wait_ready()
    tenant = Tenant(platform.postgres, name, platform.image)
    tenant.create()
    yield tenant
    if request.node.stash.get(FAILED, False):
        spaces = (name, platform.postgres.namespace, OPERATOR_NAMESPACE)
        evidence.save(tenant.cluster, ROOT / "build" / "e2e" / name, spaces)
    tenant.remove()


def slug(test: str) -> str:
    """Return a namespace for a test: the first words of its name, and a digest by which its cases differ."""
    words = re.sub(r"[^a-z0-9]+", "-", test.removeprefix("test_").lower())[:33].strip("-")
    return f"t-{words}-{hashlib.sha256(test.encode()).hexdigest()[:6]}"
