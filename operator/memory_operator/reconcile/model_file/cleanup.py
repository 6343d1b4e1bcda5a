"""Decide which volume claims, Jobs and NetworkPolicies of model files are no longer needed.

The claim of a former model file stays while a Deployment mounts it or a pod of an older template exists.
"""

from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import JobFacts, JobState, Observed
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.plan import Action, Delete, delete_existing
from memory_operator.resources import model_fetch as resources
from memory_operator.resources.workers import work_of

_POLICY = "NetworkPolicy"


def delete_unneeded(index: MemoryIndex, observed: Observed) -> tuple[Action, ...]:
    """Return the writes that delete former claims, and the Job and NetworkPolicy of a fetch that is not needed."""
    source = index.fetched_source
    wanted = resources.claim_name(index, source) if source else ""
    live = observed.children.get((resources.CLAIM, wanted))
    names = _former_claims(observed, wanted)
    deletions: list[Action] = [*delete_existing(observed, *((resources.CLAIM, name) for name in names))]
    running = active_job(observed.jobs_of(resources.COMPONENT))
    if running and (source is None or (live is not None and resources.is_fetched(live))):
        deletions.append(Delete("Job", index.namespace, running.name, running.uid))
    deletions += [Delete("Job", index.namespace, job.name, job.uid) for job in _former_jobs(index, observed)]
    policy = f"{index.name}-{resources.COMPONENT}"
    fetching = running or any(not pod.ended for pod in observed.pods_of(resources.COMPONENT))
    if source is None and not fetching:
        deletions += delete_existing(observed, (_POLICY, policy))
    return tuple(deletions)


def _former_jobs(index: MemoryIndex, observed: Observed) -> list[JobFacts]:
    """Return the Jobs that have ended and that fetched another file than the one that is needed now.

    Kubernetes does not delete a claim as long as a pod names it, even a pod that has ended, and a Job keeps its pods.
    """
    source = index.fetched_source
    wanted = resources.fetch_work(index, source) if source else ""
    ended = [job for job in observed.jobs_of(resources.COMPONENT) if job.state is not JobState.ACTIVE]
    return [job for job in ended if work_of(job.config) != wanted]


def _former_claims(observed: Observed, wanted: str) -> list[str]:
    """Return the names of the claims that no embedder pod mounts or will mount."""
    deployments = (observed.embedder, observed.next_embedder)
    if not all(deployment is None or deployment.current for deployment in deployments):
        return []
    templates = [item["spec"]["template"] for (kind, _), item in observed.children.items() if kind == "Deployment"]
    volumes = [volume for template in templates for volume in template["spec"].get("volumes") or ()]
    mounted = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
    kept = {wanted, *mounted}
    claims = {name: item for (kind, name), item in observed.children.items() if kind == resources.CLAIM}
    return sorted(name for name in claims.keys() - kept if "deletionTimestamp" not in claims[name]["metadata"])
