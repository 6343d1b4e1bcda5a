"""The tests of `make e2e-local`, which try the product as users get it, on one cluster that they share.

Beside them are tests of the development cluster, and of situations on a cluster that unit and integration tests hold
without one. They take too long for `make test`. Each test records the figures that it proves; the last line of the run
is one line of JSON with all of them, and with the minutes of the first `make demo` on this machine, if it was recorded.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import devcluster
from devcluster import first_run
from devcluster.building.opentofu import ensure_opentofu
from devcluster.cluster import Cluster
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.postgres import create_postgres
from tests.support.cluster.platform import PERMITTED, Platform

FIGURES = pytest.StashKey[dict[str, Any]]()
RESULTS = Path(__file__).parents[2] / "build" / "delivery" / "summary.json"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the cluster needs before the first test, whose time limit does not allow for compiling Kubernetes."""
    if session.items and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            devcluster.prepare()
            if any("tofu" in getattr(item, "fixturenames", ()) for item in session.items):
                ensure_opentofu(devcluster.Settings(), devcluster.ConsoleReporter())


def pytest_configure(config: pytest.Config) -> None:
    """Start with no figures."""
    config.stash[FIGURES] = {}


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the figures to a file, and as the last line of the run."""
    figures = config.stash[FIGURES]
    if figures:
        first = first_run.read(devcluster.Settings())
        figures = {"cold_demo_minutes": first and first.minutes, **figures}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        sys.stdout.write(json.dumps(figures) + "\n")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The figures of the run so far, by name; a test adds those that it proves."""
    return pytestconfig.stash[FIGURES]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A fresh cluster that ends with the run; CloudNativePG is installed in it, the operator is not."""
    with devcluster.start(f"delivery-{os.getpid()}") as started:
        devcluster.install_cnpg(started)
        yield started


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Iterator[Platform]:
    """A Postgres cluster and the operator for the tests of one module; nothing of either is left afterwards."""
    images = devcluster.load_images(cluster)
    postgres = create_postgres(cluster, namespace="platform-dbaas", name="pg-platform", storage="1Gi", cpu="100m")
    platform = Platform(postgres, images.operator, images.embedder)
    platform.install(*PERMITTED)
    yield platform
    cluster.helm("uninstall", "memory-index", f"--namespace={OPERATOR_NAMESPACE}", "--wait")
    cluster.kubectl("delete", "crd", "memoryindexes.memory-index.dev", "--wait", "--timeout=240s")
    cluster.kubectl("delete", "namespace", postgres.namespace, "--wait", "--timeout=300s")
