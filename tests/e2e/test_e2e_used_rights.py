"""The operator's roles grant what its requests need and nothing else, cluster-wide and bound to namespaces.

This reads what the operator did for all other tests, so it comes last and holds for the whole of tests/e2e.
"""

import json
from typing import Any

import pytest
import yaml

from devcluster.install import CHART, OPERATOR_NAMESPACE
from devcluster.node.configs import OPERATOR_USER
from tests.e2e.rights import Right, Rights, Role, granted, unused, used
from tests.e2e.sharing import SharedCluster
from tests.support.cluster.platform import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.exclusive]
NAME = "memory-operator"
CLUSTER_WIDE, BOUND = "cluster-wide", "bound to namespaces"
VALUES: dict[str, dict[str, Any]] = {
    CLUSTER_WIDE: {},
    BOUND: {"watchNamespaces": ["any"], "databaseNamespaces": ["other"]},
}
CNPG = "postgresql.cnpg.io"
# What no request of these tests uses, and why it is granted all the same.
EXPLAINED = {
    Right(
        "update", "memory-index.dev", "memoryindexes/finalizers"
    ): "admission control asks for it, for owner references",
    Right(
        "get", "memory-index.dev", "memoryindexes"
    ): "read live only in a namespace that was being deleted at the start",
    Right("get", CNPG, "clusters"): "read live only while no Cluster is known, and where Clusters are not watched",
    Right("delete", "", "configmaps"): "only where the database's authority is no longer needed",
    Right("delete", "batch", "jobs"): "a Job is replaced only where it cannot run, or its work is not wanted any more",
    **{
        Right(verb, "policy", "poddisruptionbudgets"): "only an embedder of several pods has a budget"
        for verb in ("get", "create", "patch", "delete")
    },
}
# Bound to namespaces, the operator only lets objects go in these tests. The same code has used these cluster-wide.
USED_CLUSTER_WIDE = {
    Right("delete", "", "services"),
    Right("delete", "networking.k8s.io", "networkpolicies"),
    *(Right(verb, CNPG, "databases") for verb in ("get", "create", "patch")),
    Right("get", "", "services"),
    Right("get", "", "secrets"),
    *(Right(verb, "", "configmaps") for verb in ("get", "create", "patch")),
    *(Right(verb, "", "persistentvolumeclaims") for verb in ("get", "create", "patch", "delete")),
}


@pytest.fixture(scope="module", params=VALUES)
def mode(request: pytest.FixtureRequest) -> str:
    """Each way to install the operator."""
    return str(request.param)


@pytest.fixture(scope="module")
def turn(request: pytest.FixtureRequest, shared: SharedCluster) -> None:
    """Come after all other modules that use the shared cluster, in whichever workers they run."""
    ours = request.node.path.stem
    modules = (item for item in request.session.items if item.get_closest_marker("cluster"))
    others = {item.path.stem for item in modules} - {ours}
    shared.wait_finished(others)


@pytest.fixture(scope="module")
def requests(platform: Platform, turn: None) -> Rights:
    """The rights that the operator has used since the cluster was started."""
    log = platform.postgres.cluster.audit_log.read_text()
    return used(log.splitlines(), user=OPERATOR_USER)


def test_the_operator_has_run_in_both_modes(requests: Rights) -> None:
    """Otherwise a comparison with its requests would say nothing."""
    assert {Role("ClusterRole", NAME), Role("ClusterRole", f"{NAME}-deletion"), Role("Role", NAME)} <= set(requests)


@pytest.mark.promise("token-without-unused-rights")
@pytest.mark.finding("D29")
def test_every_right_was_used_or_has_a_reason(platform: Platform, requests: Rights, mode: str) -> None:
    settings = [f"--set-json={name}={json.dumps(value)}" for name, value in VALUES[mode].items()]
    arguments = ("template", NAME, str(CHART), f"--namespace={OPERATOR_NAMESPACE}", *settings)
    rendered = yaml.safe_load_all(platform.postgres.cluster.helm(*arguments))
    given = granted((body for body in rendered if body), account=NAME)
    explained = EXPLAINED.keys() | (USED_CLUSTER_WIDE if mode == BOUND else set())
    left = {role: sorted(rights - explained) for role, rights in unused(given, requests).items()}
    assert {role: rights for role, rights in left.items() if rights} == {}


@pytest.mark.finding("D29")
def test_what_is_not_tried_in_namespaces_was_used_cluster_wide(requests: Rights) -> None:
    assert requests[Role("ClusterRole", NAME)] >= USED_CLUSTER_WIDE
