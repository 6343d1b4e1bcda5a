"""Decide whether a Deployment runs its latest pod template, and whether a new default image has to wait.

The Deployment's condition does not hold until the roll-out has ended, even if an older pod serves, because the
specified state is not reached before. During the roll-out, problems of pods of an older template are ignored, because
the roll-out may solve them.
"""

from dataclasses import replace

from memory_operator.api.conditions import Verdict
from memory_operator.api.embedder import COMPONENT
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.facts import DeploymentFacts, Observed, PodFacts, Problem
from memory_operator.reconcile.plan import failed_step, has_drifted
from memory_operator.resources.common import ANNOTATION_SPECIFICATION, Images, own_container
from memory_operator.resources.drift import Difference
from memory_operator.resources.embedder import GPU_LAYERS

_RESUME = "Resume it: `kubectl rollout resume`."


def rollout_obstacle(
    name: str, deployment: DeploymentFacts, pods: tuple[PodFacts, ...], *, changes: bool, note: str = ""
) -> Verdict | None:
    """Return why the roll-out has not ended or no pod is ready; None if it has ended and a pod is ready.

    `changes` says that another pod template is applied now. `note` tells users what the roll-out means for recalls.
    """
    rolling_out = Verdict.no(Reason.ROLLING_OUT, f"{name} is being rolled out.{note or _older_pod_note(deployment)}")
    if deployment.paused:
        rolling_out = replace(rolling_out, message=f"{rolling_out.message} Somebody has paused it.", remedy=_RESUME)
    if changes:
        return rolling_out
    if deployment.current and deployment.ready > 0:
        return None
    problem = latest_problem(deployment, pods)
    if problem:
        return failed_step(
            Problem(problem.reason, f"{problem.message}{_older_pod_note(deployment)}", problem.remedy)
        ).verdict
    if deployment.failure:
        return Verdict.no(Reason.POD_REJECTED, f"{name} cannot create pods: {deployment.failure}")
    if deployment.deadline_exceeded:
        message = f"{name} has not been rolled out within its deadline.{_older_pod_note(deployment)}"
        return Verdict.no(Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    return Verdict.no(Reason.STARTING, f"{name} has no ready pod yet.{note}") if deployment.current else rolling_out


def latest_problem(deployment: DeploymentFacts, pods: tuple[PodFacts, ...]) -> Problem | None:
    """Return what keeps a pod of the latest template from running, or None if nothing does.

    The latest template's pods are the newest pods that are not ending.
    """
    living = [pod for pod in pods if not (pod.ended or pod.deleting)]
    if not deployment.current:
        newest = sorted(living, key=lambda pod: pod.created_at.timestamp() if pod.created_at else 0.0, reverse=True)
        living = newest[: deployment.updated]
    return next((pod.problem for pod in living if pod.problem), None)


def template_drifted(observed: Observed, desired: Manifest) -> bool:
    """Return whether the existing Deployment differs from the desired one in more than the number of replicas.

    The result is False if the Deployment does not exist yet.
    """
    spec = {name: value for name, value in desired["spec"].items() if name != "replicas"}
    exists = (desired["kind"], desired["metadata"]["name"]) in observed.children
    return exists and has_drifted(observed, {**desired, "spec": spec})


def pods_serve(deployment: DeploymentFacts | None) -> bool:
    """Return whether a pod of the Deployment's latest template is ready, whatever is still to be changed in it."""
    if deployment is None:
        return False
    return deployment.ready > 0 if deployment.current else deployment.updated_and_ready > 0


def with_live_template(desired: Manifest, live: Manifest) -> Manifest:
    """Return the desired Deployment with all of the live one's specification but the number of replicas.

    Applying it replaces no pod, and the records of what the live one was made from stay.
    """
    annotations = live["metadata"].get("annotations") or {}
    records = {name: annotations[name] for name in desired["metadata"]["annotations"] if name in annotations}
    kept = {name: value for name, value in live["spec"].items() if name != "replicas"}
    spec = {**kept, "replicas": desired["spec"]["replicas"]}
    return {**desired, "metadata": {**desired["metadata"], "annotations": records}, "spec": spec}


def update_waits(index: MemoryIndex, observed: Observed, images: Images, desired: Manifest, live: Manifest) -> bool:
    """Return whether the embedder's new default image waits until another MemoryIndex's embedder is rolled out.

    An object does not wait if its specification has been edited since the live Deployment was made, or if another model
    has just become active.
    """
    recorded = (live["metadata"].get("annotations") or {}).get(ANNOTATION_SPECIFICATION)
    edited = recorded != desired["metadata"]["annotations"][ANNOTATION_SPECIFICATION]
    same_model = serves(live, index.spec.embedding.model)
    return not observed.rollout_admitted and not edited and same_model and has_older_image(index, observed, images)


def has_older_image(index: MemoryIndex, observed: Observed, images: Images) -> bool:
    """Return whether the embedder uses the default image, but of another version than the operator's.

    Admission may have put another registry before the name that the operator sent; such an image is not older.
    """
    live = observed.embedder
    if live is None or not live.image or index.spec.embedder.image:
        return False
    admission = observed.admissions.get(("Deployment", f"{index.name}-{COMPONENT}"))
    changes = admission.changes.values() if admission else ()
    return Difference(images.embedder, live.image) not in changes and live.image != images.embedder


def image_of(deployment: Manifest) -> str:
    """Return the image of the container that the operator defines; admission may have added other containers."""
    return str(_container(deployment)["image"])


def serves(embedder: Manifest, model: str) -> bool:
    """Return whether the pods of an embedder's Deployment serve the model of this name."""
    return model in _container(embedder).get("command", ())


def computes_on_gpu(embedder: Manifest) -> bool:
    """Return whether the pods of an embedder's Deployment are told to compute on a GPU."""
    command = list(_container(embedder).get("command", ()))
    given = command[command.index(GPU_LAYERS) + 1 :] if GPU_LAYERS in command else []
    return given[:1] not in ([], ["0"])


def embeds(sync: Manifest, model: str) -> bool:
    """Return whether the pods of a sync worker's Deployment are set up for the model of this name."""
    return {"name": "MEMORY_MODEL", "value": model} in _container(sync).get("env", ())


def _container(deployment: Manifest) -> Manifest:
    return own_container(deployment["spec"]["template"]["spec"])


def _older_pod_note(deployment: DeploymentFacts) -> str:
    """Return a sentence for messages that says that an older pod still serves; empty if none does."""
    return "" if deployment.ready == 0 else " An older pod serves meanwhile."
