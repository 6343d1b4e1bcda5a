"""The embedding service: is it there, is it what was asked for, and how many pods does it need.

It is started as soon as the database has answered, beside the migration, because loading a model takes longest.
"""

from collections.abc import Iterator

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.observed import EmbedderLoad, Observed, PodFacts, Problem
from memory_operator.reconcile.plan import Apply, Delete
from memory_operator.reconcile.step import Step, failed, waiting
from memory_operator.resources import embedder as resources
from memory_operator.resources.common import Images
from memory_operator.resources.drift import drifted


def serving(index: MemoryIndex, seen: Observed, images: Images, *, database: Verdict, replicas: int) -> Step:
    """Whether texts can be embedded, and the objects that make it so."""
    if not index.runs_embedder:
        return Step(_elsewhere(index, seen), tuple(_leftovers(index, seen)))
    if seen.embedder is None and not database.holds:
        return waiting("the database")
    wanted = resources.objects(index, images, replicas=replicas)
    stale = [item for item in wanted if drifted(item, seen.children.get((item["kind"], item["metadata"]["name"])))]
    return Step(_verdict(index, seen, replicas), tuple(Apply(item) for item in stale))


def fallen_back(index: MemoryIndex, loads: tuple[EmbedderLoad, ...]) -> EmbedderLoad | None:
    """A pod that computes on the CPU though a GPU was asked for."""
    if index.spec.embedder.gpu_layers == 0:
        return None
    return next((load for load in loads if load.device == "cpu"), None)


def _elsewhere(index: MemoryIndex, seen: Observed) -> Verdict:
    """Whether an embedder that is not ours can be used."""
    if seen.external:
        return failed(seen.external).verdict
    if index.hosted:
        provider = index.spec.embedding.provider
        message = f"{provider} embeds, at {index.embedder_url}; sensitive rows are never sent there."
        return Verdict.yes(Reason.AVAILABLE, message)
    return Verdict.yes(Reason.AVAILABLE, f"The external embedder at {index.embedder_url} answers.")


def _leftovers(index: MemoryIndex, seen: Observed) -> Iterator[Delete]:
    """The service that we ran before the embedder was elsewhere."""
    for version, kind in (("apps/v1", "Deployment"), ("v1", "Service"), ("networking.k8s.io/v1", "NetworkPolicy")):
        name = f"{index.name}-{resources.COMPONENT}"
        if (kind, name) in seen.children:
            yield Delete(version, kind, index.namespace, name)


def _verdict(index: MemoryIndex, seen: Observed, replicas: int) -> Verdict:
    name = f"Deployment {index.namespace}/{index.name}-embedder"
    if seen.embedder is None:
        return Verdict.no(Reason.STARTING, f"{name} is being created.")
    problem = _pod_problem(seen)
    if seen.embedder.ready > 0:
        note = f" {problem.message}" if problem and seen.embedder.ready < replicas else ""
        return Verdict.yes(Reason.AVAILABLE, f"{name} serves.{note}")
    if replicas == 0:
        return Verdict.yes(Reason.SCALED_TO_ZERO, f"{name} has no pods, since nothing is queued and minReplicas is 0.")
    return _not_ready(index, seen, name, problem)


def _not_ready(index: MemoryIndex, seen: Observed, name: str, problem: Problem | None) -> Verdict:
    """Why no pod serves, the most exact cause first."""
    slow = fallen_back(index, seen.loads)
    if slow:
        return Verdict.no(
            Reason.GPU_NOT_USED, f"Pod {slow.pod} computes on the CPU though spec.embedder.gpuLayers asks for a GPU."
        )
    if problem:
        return Verdict.no(problem.reason, problem.message, problem.remedy or None)
    if seen.embedder and seen.embedder.failure:
        return Verdict.no(Reason.POD_REJECTED, f"{name} cannot create pods: {seen.embedder.failure}")
    return Verdict.no(Reason.STARTING, f"{name} has no ready pod yet; the model is being loaded.")


def _pod_problem(seen: Observed) -> Problem | None:
    pods: list[PodFacts] = [pod for pod in seen.pods if pod.component == resources.COMPONENT and not pod.deleting]
    return next((pod.problem for pod in pods if pod.problem), None)
