"""Pods of ours under an admission that assigns users and groups, and refuses those that a pod states, as OpenShift's.

OpenShift's own admission is no part of Kubernetes. Two policies stand for what it does in a namespace: one refuses a
pod whose user, group or fsGroup is not of the namespace's range, and one assigns the first of the range to a pod that
states none.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.errors import CommandError
from devcluster.install import CHART, OPERATOR_NAMESPACE
from devcluster.retrying import until
from memory_operator.resources.common import USER_ID
from tests.unit.chart.test_pod_policies import GOLDEN_WORKLOADS

SPACE = "assigned-users"
FIRST, SIZE = 1000680000, 10000
LABEL = "openshift-like"
VERSION = "admissionregistration.k8s.io/v1"
ABSENT = {"priorityClassName", "runtimeClassName", "serviceAccountName"}
RANGE = f"{FIRST} <= one && one < {FIRST + SIZE}"
# Every number of a user or a group that a pod or a container states; group 0 is what an assigned user has.
USERS = (
    "variables.containers.map(one, has(one.securityContext) && has(one.securityContext.runAsUser), "
    "one.securityContext.runAsUser) + (has(variables.pod.runAsUser) ? [variables.pod.runAsUser] : [])"
)
GROUPS = "(has(variables.pod.fsGroup) ? [variables.pod.fsGroup] : [])"
PRIMARY = (
    "variables.containers.map(one, has(one.securityContext) && has(one.securityContext.runAsGroup), "
    "one.securityContext.runAsGroup) + (has(variables.pod.runAsGroup) ? [variables.pod.runAsGroup] : [])"
)
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
MATCHED = {"namespaceSelector": {"matchLabels": {LABEL: "yes"}}, "resourceRules": [PODS]}


def refusing() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the policy that refuses users and groups outside of the range, and its binding."""
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": MATCHED,
        "variables": [
            {
                "name": "containers",
                "expression": "object.spec.containers + (has(object.spec.initContainers) ? "
                "object.spec.initContainers : [])",
            },
            {"name": "pod", "expression": "object.spec.securityContext"},
        ],
        "validations": [
            {"expression": f"({USERS}).all(one, {RANGE})", "message": "runAsUser is not in the namespace's range"},
            {"expression": f"({GROUPS}).all(one, {RANGE})", "message": "fsGroup is not in the namespace's range"},
            {
                "expression": f"({PRIMARY}).all(one, one == 0 || {RANGE})",
                "message": "runAsGroup is not in the namespace's range",
            },
        ],
    }
    meta = {"name": f"{LABEL}-refuses"}
    bound = {"policyName": meta["name"], "validationActions": ["Deny"]}
    return (
        {"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": spec},
        {"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta, "spec": bound},
    )


def assigning() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the policy that assigns user and groups to a pod that states none, and its binding."""
    patch = (
        f"Object{{spec: Object.spec{{securityContext: Object.spec.securityContext{{runAsUser: {FIRST}, "
        f"runAsGroup: 0, fsGroup: {FIRST}}}}}}}"
    )
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": MATCHED,
        "matchConditions": [{"name": "states-none", "expression": "!has(object.spec.securityContext.runAsUser)"}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch}}],
    }
    meta = {"name": f"{LABEL}-assigns"}
    bound = {"policyName": meta["name"]}
    return (
        {"apiVersion": VERSION, "kind": "MutatingAdmissionPolicy", "metadata": meta, "spec": spec},
        {"apiVersion": VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": meta, "spec": bound},
    )


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a Deployment's or Job's controller would create, without what this cluster has not."""
    template = workload["spec"]["template"]
    spec = {name: value for name, value in template["spec"].items() if name not in ABSENT}
    meta = {"labels": template["metadata"]["labels"], "generateName": "trial-", "namespace": SPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def without_numbers(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a workload as the operator makes it where the cluster assigns users: without its three numbers."""
    changed: dict[str, Any] = json.loads(json.dumps(workload))
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        assert changed["spec"]["template"]["spec"]["securityContext"].pop(field) == USER_ID
    return changed


def create(cluster: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """Have the API server admit a pod, and return the pod as it would be stored."""
    answer = cluster.kubectl("create", "--dry-run=server", "-f", "-", "-o", "json", input=json.dumps(pod))
    return dict(json.loads(answer))


@pytest.fixture(scope="module")
def assigned(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a namespace under both policies, once the API server acts on them."""
    labels = {LABEL: "yes", "pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}})
    account = ("-n", SPACE, "get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
    until("the default service account exists", lambda: bool(cluster.kubectl(*account)), seconds=240)
    policies = (*refusing(), *assigning())
    cluster.apply(*policies)
    fixed, left_out = pod_of(GOLDEN_WORKLOADS[0]), pod_of(without_numbers(GOLDEN_WORKLOADS[0]))

    def acts() -> bool:
        try:
            create(cluster, fixed)
        except CommandError:
            return "runAsUser" in create(cluster, left_out)["spec"]["securityContext"]
        return False

    until("the API server acts on the policies", acts, seconds=120)
    yield cluster
    cluster.kubectl("delete", "namespace", SPACE, "--wait", "--timeout=240s")
    for policy in reversed(policies):
        cluster.kubectl("delete", policy["kind"], policy["metadata"]["name"])


@pytest.mark.finding("operator F7")
def test_every_pod_is_admitted_and_gets_the_users_of_the_namespace(assigned: Cluster) -> None:
    """The operator's, with the chart's value, and all that the operator starts."""
    chart = assigned.helm(
        "template", "memory-index", str(CHART), f"--namespace={OPERATOR_NAMESPACE}",
        "--set=compatibility.openshift.adaptSecurityContext=force",
    )  # fmt: skip
    (operator,) = (body for body in yaml.safe_load_all(chart) if body and body["kind"] == "Deployment")
    for workload in (operator, *(without_numbers(one) for one in GOLDEN_WORKLOADS)):
        security = create(assigned, pod_of(workload))["spec"]["securityContext"]
        assert (security["runAsUser"], security["fsGroup"]) == (FIRST, FIRST)


def test_a_pod_with_users_of_ours_is_refused(assigned: Cluster) -> None:
    """Otherwise the test before this one would prove nothing."""
    with pytest.raises(CommandError, match="namespace's range"):
        create(assigned, pod_of(GOLDEN_WORKLOADS[0]))


@pytest.mark.parametrize("field", ["runAsUser", "runAsGroup", "fsGroup"])
def test_each_number_outside_of_the_range_is_refused(assigned: Cluster, field: str) -> None:
    """Each alone."""
    pod = pod_of(without_numbers(GOLDEN_WORKLOADS[0]))
    pod["spec"]["securityContext"] |= {"runAsUser": FIRST, field: USER_ID}
    with pytest.raises(CommandError, match=field):
        create(assigned, pod)
