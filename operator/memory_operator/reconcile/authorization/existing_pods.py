"""Decide whether an embedder's existing pods may go on running, whatever the specification names by now.

API pods call an embedder without the operator, so it goes on receiving queries as long as it runs. Therefore what its
pods were made with is compared with what is permitted now: the choices of the author that they record, and the Secret
that they mount as an API key. A permission or a consent that none of them needs does not concern them.
"""

from collections.abc import Iterable, Mapping

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.authorization.permissions import Permitted, first_refused, how_to_permit
from memory_operator.reconcile.facts import Observed, PodFacts, Problem
from memory_operator.reconcile.plan import failed_step
from memory_operator.resources.choices import Choice, recorded_choices
from memory_operator.resources.common import LABEL_COMPONENT
from memory_operator.resources.embedder import EMBEDDERS
from memory_operator.resources.worker_pods import mounted_secrets


def forbidden_embedders(observed: Observed, permitted: Permitted) -> dict[str, Verdict]:
    """Return by component why the pods of an embedder must not run; a component whose pods may run is left out."""
    found = [item for (kind, _), item in observed.children.items() if kind == "Deployment"]
    return forbidden_among(found, observed.pods, observed.refused_keys, permitted)


def forbidden_among(
    deployments: Iterable[Manifest],
    pods: Iterable[PodFacts],
    refused_keys: Mapping[str, Problem],
    permitted: Permitted,
) -> dict[str, Verdict]:
    """Return by component of these Deployments why the pods of an embedder must not run, as `forbidden_embedders` does.

    `pods` are the pods of the MemoryIndex, which may be older than the templates of the Deployments. `refused_keys` are
    the Secrets that must not be used as API keys, by name.
    """
    running = [pod for pod in pods if pod.controlled and not (pod.ended or pod.deleting)]
    verdicts: dict[str, Verdict] = {}
    for deployment in deployments:
        component, template = component_of(deployment), deployment["spec"]["template"]
        if component not in EMBEDDERS:
            continue
        chosen = [choice for pod in running if pod.component == component for choice in pod.choices]
        refused = first_refused([*recorded_choices(template), *chosen], permitted)
        keys = [refused_keys[name] for name in sorted(mounted_secrets(template)) if name in refused_keys]
        if refused:
            verdicts[component] = _not_permitted(deployment, refused)
        elif keys:
            verdicts[component] = failed_step(keys[0]).verdict
    return verdicts


def component_of(deployment: Manifest) -> str:
    """Return the component that a Deployment's label names; empty if it has no such label."""
    return str((deployment["metadata"].get("labels") or {}).get(LABEL_COMPONENT, ""))


def _not_permitted(deployment: Manifest, choice: Choice) -> Verdict:
    meta = deployment["metadata"]
    message = (
        f"Deployment {meta['namespace']}/{meta['name']} has pods that were made with {choice.value} "
        f"({choice.field[0].lower()}{choice.field[1:]}), which the operator does not permit."
    )
    return Verdict.no(Reason.NOT_PERMITTED, message, how_to_permit(choice))
