"""Add what all pods of the operator have: `spec.embedder.podTemplate`, and which container is ours.

Values that the operator sets itself take precedence.
"""

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.choices import record_of_choices
from memory_operator.resources.common import selector

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def completed(template: Manifest, index: MemoryIndex, component: str) -> Manifest:
    """Return a pod template with all that the author adds to every pod.

    An annotation says which container is ours, so that `kubectl exec` and `kubectl logs` find it beside a sidecar.
    Another one records what the author has chosen that takes a permission.
    A topology spread constraint without a label selector counts the pods of the same component. Tolerations are added
    to those that the template has; of its other fields, one that both have is the template's.
    """
    given = index.spec.embedder.pod_template
    own_pods = {"labelSelector": {"matchLabels": selector(index, component)}}
    spec, meta = template["spec"], template["metadata"]
    own_tolerations = spec.get("tolerations", [])
    ours = {_DEFAULT_CONTAINER: spec["containers"][0]["name"], **record_of_choices(index, component)}
    optional: Manifest = {
        "nodeSelector": {**given.node_selector, **spec.get("nodeSelector", {})},
        "tolerations": [*own_tolerations, *(one for one in given.tolerations if one not in own_tolerations)],
        "priorityClassName": spec.get("priorityClassName") or given.priority_class_name,
        "affinity": dict(given.affinity),
        "topologySpreadConstraints": [own_pods | constraint for constraint in given.topology_spread_constraints],
        "imagePullSecrets": list(given.image_pull_secrets),
    }
    return {
        **template,
        "metadata": {
            **meta,
            "labels": {**given.labels, **meta["labels"]},
            "annotations": {**given.annotations, **meta.get("annotations", {}), **ours},
        },
        "spec": {
            **spec,
            "containers": [_with_env(container, given.env) for container in spec["containers"]],
            **{name: value for name, value in optional.items() if value},
        },
    }


def _with_env(container: Manifest, given: tuple[Manifest, ...]) -> Manifest:
    own = container.get("env", [])
    names = {item["name"] for item in own}
    added = [dict(item) for item in given if item["name"] not in names]
    return {**container, "env": [*own, *added]} if added else container
