"""Brings objects to Ready while MutatingAdmissionPolicies change the objects that the operator creates.

Each policy stands for what GKE Autopilot, Kyverno, Gatekeeper, Harbor or a service mesh does, and acts in the
namespaces that carry its label. No expression changes again what it has changed, as is demanded of such policies.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from devcluster.demo.objects import Object
from devcluster.node.configs import OPERATOR_USER
from memory_operator.resources.common import Images, pod_security
from tests.support.cluster.audit import AuditTail
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, Tenant
from tests.support.waiting import eventually

LABEL = "memory-bench/mutation-"
MIRROR = "mirror.example"
ROWS = 20
QUIET_SECONDS = 15.0
SETTLE_SECONDS = 120.0
MEASURED_SECONDS = 60.0
_POD = "object.spec.template.spec"
_IMAGE = "/spec/template/spec/containers/0/image"


@dataclass(frozen=True)
class Mutation:
    """A policy: the resources that it acts on, as `group/plural`, the patch in CEL, and the field that it changes.

    `condition` is the condition that must name the field; it is empty if the operator does not set the field.
    """

    resource: str
    patch: str
    condition: str = ""
    field: str = ""


def _first(path: str, value: str) -> str:
    return f'[JSONPatch{{op: "add", path: "/spec/template/spec/containers/0/{path}", value: {value}}}]'


_DIGESTLESS = f'"{MIRROR}/" + {_POD}.containers[0].image.replace("localhost/", "")'
_CONTEXT = "Object.spec.template.spec.containers.securityContext"
_RESTRICTED = f'{_CONTEXT}{{allowPrivilegeEscalation: false, capabilities: {_CONTEXT}.capabilities{{drop: ["ALL"]}}}}'
MUTATIONS: dict[str, Mutation] = {
    "resources": Mutation(
        "apps/deployments", _first("resources/requests/cpu", '"150m"'), "EmbedderReady", "requests.cpu"
    ),
    "registry": Mutation(
        "apps/deployments",
        f'{_POD}.containers[0].image.startsWith("{MIRROR}/") ? [] : '
        f'[JSONPatch{{op: "replace", path: "{_IMAGE}", value: {_DIGESTLESS}}}]',
        "EmbedderReady",
        "containers[embedder].image",
    ),
    "pull-policy": Mutation(
        "apps/deployments", _first("imagePullPolicy", '"Never"'), "EmbedderReady", "imagePullPolicy"
    ),
    "annotations": Mutation(
        "apps/deployments",
        '[JSONPatch{op: "add", path: "/spec/template/metadata/annotations/prometheus.io~1scrape", value: "false"}, '
        'JSONPatch{op: "add", path: "/metadata/annotations/team", value: "blue"}]',
        "EmbedderReady",
        "prometheus.io/scrape",
    ),
    "tolerations": Mutation(
        "apps/deployments",
        '[JSONPatch{op: "add", path: "/spec/template/spec/tolerations", '
        'value: [{"key": "pool", "operator": "Exists"}]}]',  # Kubernetes 1.36 panics at a list of typed objects
    ),
    "sidecar": Mutation(
        "apps/deployments",
        f'{_POD}.containers.exists(one, one.name == "proxy") ? [] : '
        '[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", '
        'value: Object.spec.template.spec.containers{name: "proxy", '
        f"image: {_POD}.containers[0].image, "
        'imagePullPolicy: "IfNotPresent", command: ["sleep", "infinity"], '
        f"securityContext: {_RESTRICTED}}}}}]",
    ),
    "jobs": Mutation("batch/jobs", _first("imagePullPolicy", '"Never"')),
    "pods": Mutation(
        "/pods",
        '[JSONPatch{op: "add", path: "/metadata/labels/team", value: "blue"}, '
        'JSONPatch{op: "add", path: "/spec/containers/0/imagePullPolicy", value: "Never"}]',
    ),
}


def policies(name: str, mutation: Mutation) -> tuple[Object, Object]:
    """Return the policy and its binding; it acts in the namespaces that carry the label of the mutation."""
    group, _, plural = mutation.resource.partition("/")
    operations = ["CREATE"] if plural == "pods" else ["CREATE", "UPDATE"]
    meta = {"name": f"bench-{name}"}
    version = "admissionregistration.k8s.io/v1"
    return {
        "apiVersion": version,
        "kind": "MutatingAdmissionPolicy",
        "metadata": meta,
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {f"{LABEL}{name}": "yes"}},
                "resourceRules": [
                    {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [plural]}
                ],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation.patch}}],
        },
    }, {
        "apiVersion": version,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": meta,
        "spec": {"policyName": meta["name"]},
    }


def begin(tenant: Tenant, names: Iterable[str]) -> None:
    """Create the tenant in a namespace on which the named mutations act, with rows and a MemoryIndex."""
    tenant.create()
    tenant.store(rows(ROWS))
    for image in (tenant.image, tenant.image.replace("memory-operator", "memory-embedder")):
        tenant.cluster.tag_image(image, image.replace("localhost/", f"{MIRROR}/"))
    labels = [f"{LABEL}{name}=yes" for name in names]
    tenant.cluster.kubectl("label", "namespace", tenant.name, "--overwrite", *labels)
    for name in names:
        _activate(tenant, name)
    tenant.apply_index()


def end(tenants: Iterable[Tenant], names: Iterable[str]) -> None:
    """Remove the policies and the tenants."""
    for tenant in tenants:
        tenant.remove()
        for name in names:
            for item in reversed(policies(name, MUTATIONS[name])):
                tenant.cluster.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found")


def check(tenant: Tenant, names: Iterable[str]) -> None:
    """Wait until the tenant's object is Ready; check that every row has a vector and the changed fields are named."""
    view = tenant.wait_ready()
    embedded = sum(not row.is_sensitive for row in rows(ROWS))
    if tenant.embedded() != embedded:
        raise AssertionError(f"{tenant.embedded()} of {embedded} rows have a vector")
    for mutation in (MUTATIONS[name] for name in names):
        condition = view.condition(mutation.condition) if mutation.condition else None
        if condition and (condition.reason != "ChangedByAdmission" or mutation.field not in condition.message):
            raise AssertionError(f"{mutation.field} is not named: {condition}")


def applies(platform: Platform, namespaces: Iterable[str], seconds: float) -> int:
    """Return how many writes of objects in these namespaces the operator sends in `seconds`, once it has settled."""
    watched = set(namespaces)
    with closing(AuditTail(platform.cluster.audit_log, OPERATOR_USER)) as tail:

        def writes() -> int:
            return sum(one.writes and any(one.concerns(name) for name in watched) for one in tail.read())

        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(QUIET_SECONDS)
            if writes() == 0:
                break
        time.sleep(seconds)
        return writes()


def _activate(tenant: Tenant, name: str) -> None:
    """Apply the policy, and wait until the API server acts on it, which takes it a moment."""
    probe = json.dumps(_probe(MUTATIONS[name].resource))
    output = "jsonpath={.metadata.annotations}{.metadata.labels}{.spec.template.metadata.annotations}{.spec}"
    ask = ("create", "--dry-run=server", "--filename=-", "-o", output)
    plain = tenant.kubectl(*ask, input=probe)
    tenant.cluster.apply(*policies(name, MUTATIONS[name]))
    eventually(lambda: tenant.kubectl(*ask, input=probe), lambda found: found != plain, what=f"{name} acts", seconds=30)


def _probe(resource: str) -> Object:
    """Return an object of this kind, with all that the patches expect of an object of the operator."""
    requests = {"resources": {"requests": {"cpu": "1m"}}}
    container = {"name": "probe", "image": "localhost/probe", "imagePullPolicy": "IfNotPresent", **requests}
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec: Object = {"containers": [container], "securityContext": pod_security(Images())}
    pod: Object = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": spec}
    meta = {"name": "probe", "annotations": {"a": "b"}, "labels": {"a": "b"}}
    if resource == "/pods":
        return {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": meta}
    if resource == "batch/jobs":
        pod["spec"]["restartPolicy"] = "Never"
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pod}}
    selected = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": selected}


@contextmanager
def opened(platform: Platform, names: Iterable[str]) -> Iterator[Tenant]:
    """Open one tenant on whose objects all the named mutations act together."""
    chosen = tuple(names)
    tenant = Tenant(platform.postgres, f"adm-{chosen[0]}" if len(chosen) == 1 else "adm-together", platform.image)
    try:
        begin(tenant, chosen)
        yield tenant
    finally:
        end([tenant], chosen)


def run_admission(platform: Platform, say: Callable[[str], None]) -> dict[str, Any]:
    """Bring one object per mutation to Ready, and one under all of them; return what went wrong, and the writes.

    The operator is restarted before the writes of the settled objects are counted, since a restart forgets what the
    API server has answered.
    """
    tenants = {name: Tenant(platform.postgres, f"adm-{name}", platform.image) for name in MUTATIONS}
    found: dict[str, str] = {}
    try:
        for name, tenant in tenants.items():
            say(f"{name}: until Ready")
            try:
                begin(tenant, [name])
                check(tenant, [name])
            except AssertionError as error:
                found[name] = str(error)
        namespaces = [tenant.name for tenant in tenants.values()]
        say("counting writes of settled objects")
        settled = applies(platform, namespaces, MEASURED_SECONDS)
        platform.scale_operator(0)
        platform.scale_operator(1)
        say("counting writes after a restart")
        restarted = applies(platform, namespaces, MEASURED_SECONDS)
    finally:
        for name, tenant in tenants.items():
            end([tenant], [name])
    return {"failed": found, "settled": settled, "restarted": restarted, "index": INDEX}
