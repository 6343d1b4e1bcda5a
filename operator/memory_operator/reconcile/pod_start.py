"""Decide when a pod that is not made, or does not start, is reported.

Kubernetes tells the cause in Events alone, which the operator does not read. Therefore the time decides, and the
message says which command shows the Events. A time without a pod is ordinary while Kubernetes waits between two pods of
a Job, and pulling an image may take many minutes; neither is counted.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.delays import doubled
from memory_operator.reconcile.facts import JobFacts, JobState, Observed, PodFacts, Problem

START_LIMIT = timedelta(seconds=60)  # to make a pod, and then to mount its volumes and give it a network
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


def with_start_problems(index: MemoryIndex, observed: Observed, now: datetime) -> Observed:
    """Return the observation with a problem for each pod that has waited too long for its volumes or its network."""
    return replace(observed, pods=tuple(_with_start_problem(index, pod, now) for pod in observed.pods))


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
