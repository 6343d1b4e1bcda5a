"""Decide when a pod that is not made, or does not start or end, is reported.

Kubernetes tells the cause in Events alone, which the operator does not read. Therefore the time decides, and the
message says which command shows the Events. A time without a pod is ordinary while Kubernetes waits between two pods of
a Job, and pulling an image may take many minutes; neither is counted.

A Job makes no pod in place of one that is still being deleted, as on a node that is lost, and does not end before a
container that admission has added, such as the proxy of a mesh.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.delays import doubled
from memory_operator.reconcile.facts import JobFacts, JobState, Observed, PodFacts, Problem

START_LIMIT = timedelta(seconds=60)  # to make a pod, and then to mount its volumes and give it a network
END_LIMIT = timedelta(seconds=60)  # to end after the grace period, or after the pod's own container
# Kubernetes doubles the wait between two pods of a Job from ten seconds to ten minutes.
FIRST_BACK_OFF_SECONDS = 10
LONGEST_BACK_OFF_SECONDS = 600


def lacks_pod(job: JobFacts, observed: Observed) -> bool:
    """Return whether a Job should have a pod and has none that runs, waits or is still being deleted."""
    if job.state is not JobState.ACTIVE or job.suspended or job.deleting:
        return False
    return all(pod.ended for pod in observed.pods_of(job.component))


def missing_pod(index: MemoryIndex, job: JobFacts, now: datetime) -> Problem | None:
    """Return the problem of a Job that has had no pod for too long, or None."""
    back_off = 0.0
    if job.failed_pods:
        back_off = doubled(FIRST_BACK_OFF_SECONDS, LONGEST_BACK_OFF_SECONDS, job.failed_pods - 1)
    if job.without_pod_since is None or now - job.without_pod_since < START_LIMIT + timedelta(seconds=back_off):
        return None
    return Problem(
        Reason.POD_REJECTED,
        "no pod of it is made.",
        f"`kubectl describe job {job.name} -n {index.namespace}` names the quota, limit range or admission control "
        "that refuses the pod; change that.",
    )


def with_overdue_problems(index: MemoryIndex, observed: Observed, now: datetime) -> Observed:
    """Return the observation with a problem for each pod that takes too long to start or to end."""
    pods = (_with_end_problem(index, _with_start_problem(index, pod, now), now) for pod in observed.pods)
    return replace(observed, pods=tuple(pods))


def termination_problem(observed: Observed, components: Collection[str]) -> Problem | None:
    """Return the problem of a pod of these components that should have ended and has not; None if there is none."""
    pods = (pod for pod in observed.pods if pod.component in components and not pod.ended)
    return next((pod.problem for pod in pods if pod.problem and pod.problem.reason is Reason.POD_NOT_ENDING), None)


def mounts(manifest: Manifest) -> str:
    """Return `, with` and the ConfigMaps, Secrets and volume claims that the pods of a Job mount; empty if none."""
    kinds = (
        ("ConfigMap", "configMap", "name"),
        ("Secret", "secret", "secretName"),
        ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
    )
    volumes = manifest["spec"]["template"]["spec"].get("volumes") or ()
    named = [f"{kind} {one[key][name]}" for one in volumes for kind, key, name in kinds if key in one]
    return f", with {', '.join(named)}" if named else ""


def _with_end_problem(index: MemoryIndex, pod: PodFacts, now: datetime) -> PodFacts:
    if pod.ending_since is None or now - pod.ending_since < END_LIMIT:
        return pod
    name = f"Pod {index.namespace}/{pod.name}"
    if pod.deleting:
        message = f"{name} is deleted and does not end."
        remedy = (
            f"`kubectl get pod {pod.name} -n {index.namespace} -o wide` names its node: bring that back, or if it is "
            "lost for good, delete the Node object."
        )
    else:
        message = f"{name} does not end, since a container that admission has added runs on after ours has ended."
        remedy = (
            "Keep that container out by a label or an annotation in spec.embedder.podTemplate, such as "
            f'sidecar.istio.io/inject: "false", and delete the Job of {pod.name}.'
        )
    return replace(pod, problem=Problem(Reason.POD_NOT_ENDING, message, remedy))


def _with_start_problem(index: MemoryIndex, pod: PodFacts, now: datetime) -> PodFacts:
    if pod.problem or pod.unprepared_since is None or now - pod.unprepared_since < START_LIMIT:
        return pod
    problem = Problem(
        Reason.POD_NOT_READY_TO_START,
        f"Pod {index.namespace}/{pod.name} has a node, and its volumes or its network are not ready.",
        f"`kubectl describe pod {pod.name} -n {index.namespace}` names the ConfigMap, Secret or volume claim that is "
        "missing: create it, or correct its name in spec.",
    )
    return replace(pod, problem=problem)
