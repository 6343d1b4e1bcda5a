"""Add `spec.embedder.podTemplate` to the operator's pods; values that the operator sets itself take precedence."""

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import selector


def completed(template: Manifest, index: MemoryIndex, component: str) -> Manifest:
    """Return a pod template with the author's labels, affinity, spread constraints, pull secrets and environment.

    A topology spread constraint without a label selector counts the pods of the same component.
    """
    given = index.spec.embedder.pod_template
    own_pods = {"labelSelector": {"matchLabels": selector(index, component)}}
    optional: Manifest = {
        "affinity": dict(given.affinity),
        "topologySpreadConstraints": [own_pods | constraint for constraint in given.topology_spread_constraints],
        "imagePullSecrets": list(given.image_pull_secrets),
    }
    spec = template["spec"]
    return {
        **template,
        "metadata": {**template["metadata"], "labels": {**given.labels, **template["metadata"]["labels"]}},
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
