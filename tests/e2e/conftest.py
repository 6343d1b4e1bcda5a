"""One cluster for the whole session: real Kubernetes, CloudNativePG, Postgres with a replica, the chart's operator.

A test takes as much of it as it needs: `cluster` is the bare cluster, `platform` adds Postgres and the operator,
`tenant` is a test's own namespace and database. When a test fails, all it touched is described in `build/e2e/<test>`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo.cluster import POSTGRES_CLUSTER, POSTGRES_NAMESPACE
from devcluster.demo.operator import NAMESPACE as OPERATOR_NAMESPACE
from devcluster.demo.operator import install_operator
from tests.e2e import evidence
from tests.e2e.tenants import Tenant

ROOT = Path(__file__).parents[2]
FAILED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Platform:
    """A cluster on which a MemoryIndex can be made."""

    cluster: Cluster
    image: str


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember that a test failed, for the fixtures that then save what they see."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]  # pytest's hooks are typed by their results alone
        for node in item.listchain():
            node.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A fresh cluster that ends with the session."""
    with devcluster.start("e2e") as started:
        yield started


@pytest.fixture(scope="session")
def platform(cluster: Cluster) -> Platform:
    """CloudNativePG, one Postgres cluster of two instances, and the operator installed by helm."""
    devcluster.install_cnpg(cluster)
    devcluster.create_postgres(cluster, POSTGRES_NAMESPACE, POSTGRES_CLUSTER, instances=2)
    return Platform(cluster, install_operator(cluster))


@pytest.fixture
def tenant(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A namespace and a database for one test."""
    yield from open_tenant(platform, request, _slug(request.node.name))


def open_tenant(platform: Platform, request: pytest.FixtureRequest, name: str) -> Iterator[Tenant]:
    """A tenant that ends with the scope of the fixture that asked for it."""
    tenant = Tenant(platform.cluster, name, platform.image)
    tenant.create()
    yield tenant
    if request.node.stash.get(FAILED, False):
        evidence.save(platform.cluster, ROOT / "build" / "e2e" / name, (name, POSTGRES_NAMESPACE, OPERATOR_NAMESPACE))
    tenant.remove()


def _slug(test: str) -> str:
    """A namespace that tells which test it is of: the words of its name, cut to what a label may hold."""
    return "t-" + re.sub(r"[^a-z0-9]+", "-", test.removeprefix("test_").lower())[:40].strip("-")
