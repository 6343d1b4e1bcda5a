"""What is in a cluster now and was not before."""

from devcluster.cluster import Cluster
from tests.delivery.terraform.stack import DEFINITION

# What the cluster itself keeps making and removing.
TRANSIENT = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses"}


def inventory(cluster: Cluster) -> set[str]:
    """Every object of the cluster, as `resource namespace/name`."""
    resources = set(cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()) - TRANSIENT
    template = "{range .items[*]}{.apiVersion} {.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
    listed = cluster.kubectl("get", ",".join(sorted(resources)), "-A", f"--output=jsonpath={template}")
    return set(listed.splitlines())


def left(cluster: Cluster, before: set[str]) -> list[str]:
    """What is in the cluster and was not; the definition with the part of the API that it makes is `crd`."""
    remaining = inventory(cluster) - before
    definition = {
        f"apiextensions.k8s.io/v1 CustomResourceDefinition /{DEFINITION}",
        "apiregistration.k8s.io/v1 APIService /v1alpha1.memory-index.dev",
    }
    return [*(["crd"] if definition <= remaining else []), *sorted(remaining - definition)]
