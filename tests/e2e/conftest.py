"""One cluster for the whole session: real Kubernetes, CloudNativePG, Postgres with a replica, the chart's operator.

A test takes as much of it as it needs: `cluster` is the bare cluster, `platform` adds Postgres and the operator,
`tenant` is a test's own namespace and database. When a test fails, all it touched is described in `build/e2e/<test>`.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import devcluster
from devcluster.cluster import Cluster
from devcluster.install import OPERATOR_NAMESPACE
from memory_bench.operator.platform import PERMITTED, Platform, create_platform
from memory_bench.operator.tenants import Tenant
from tests.e2e import evidence

ROOT = Path(__file__).parents[2]
FAILED = pytest.StashKey[bool]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the cluster needs before the first test, whose time limit does not allow for compiling Kubernetes."""
    on_cluster = any(item.get_closest_marker("cluster") for item in session.items)
    if on_cluster and not session.config.option.collectonly:
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


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A fresh cluster that ends with the session."""
    with devcluster.start(f"e2e-{os.getpid()}") as started:
        yield started


@pytest.fixture(scope="session")
def platform(cluster: Cluster) -> Platform:
    """CloudNativePG, one Postgres cluster of two instances, and the operator installed by helm."""
    return create_platform(cluster, instances=2, settings=PERMITTED)


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
    """Return a namespace for a test: the words of its name, cut to the length of a label."""
    return "t-" + re.sub(r"[^a-z0-9]+", "-", test.removeprefix("test_").lower())[:40].strip("-")
