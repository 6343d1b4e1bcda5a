"""Decide EmbedderReady: whether the embedding service runs as specified, and how many pods it has.

It is started as soon as the database has answered, beside the migration, because loading a model takes longest.

The number of pods follows the queued work, measured in seconds of one pod: queued tokens over measured tokens a second.
The number rises at once to what finishes the queued work within the target. It falls to the most that was needed within
the delay, so that a pause between two bursts costs no start of a model. Without a measurement it stays.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import EmbedderLoad, Observed, Problem, Recommendation
from memory_operator.reconcile.jobs import active_job
from memory_operator.reconcile.plan import Action, Delete, Step, apply_drifted, failed_step, waiting_for
from memory_operator.resources import embedder as resources
from memory_operator.resources.common import Images


@dataclass(frozen=True)
class ReplicaBounds:
    """The limits and targets of the specification; times are in seconds."""

    minimum: int
    maximum: int
    target_seconds: float
    delay_seconds: float


def plan_replicas(index: MemoryIndex, observed: Observed, now: datetime) -> tuple[int, Recommendation | None]:
    """Return the replicas to set, and what the present work alone needs; 0 and None where we run no embedder."""
    embedder = index.spec.embedder
    if not index.runs_embedder:
        return 0, None
    bounds = ReplicaBounds(
        minimum=embedder.min_replicas,
        maximum=max(embedder.max_replicas, embedder.min_replicas),
        target_seconds=embedder.target_queue_seconds,
        delay_seconds=embedder.scale_down_delay_seconds,
    )
    current = observed.embedder.replicas if observed.embedder else None
    needed = needed_replicas(
        observed.loads,
        bounds,
        current=current or 0,
        bulk_workers=index.spec.backfill.parallelism if active_job(observed.jobs_of("backfill")) else 0,
        pending=observed.database_facts is None or observed.database_facts.rows.pending > 0,
    )
    desired = desired_replicas(needed, bounds, current=current, history=observed.recommendations, now=now)
    return desired, Recommendation(now, needed)


def needed_replicas(
    loads: Iterable[EmbedderLoad], bounds: ReplicaBounds, *, current: int, bulk_workers: int, pending: bool
) -> int:
    """Return the pods that the present work needs; each of the backfill's `bulk_workers` keeps one of them busy."""
    measured = [load for load in loads if load.tokens_per_second > 0]
    queued = sum(load.queued_tokens for load in loads)
    floor = max(bulk_workers, 1 if pending else 0)
    if not measured:
        by_queue = current if queued else 0
    else:
        rate = sum(load.tokens_per_second for load in measured) / len(measured)
        by_queue = math.ceil(min(bounds.maximum, queued / rate / bounds.target_seconds))  # a tiny rate overflows
    return min(bounds.maximum, max(bounds.minimum, floor, by_queue))


def desired_replicas(
    needed: int, bounds: ReplicaBounds, *, current: int | None, history: Iterable[Recommendation], now: datetime
) -> int:
    """Return the replicas to set; they fall only where the history covers the whole delay."""
    if current is None or needed >= current:
        return needed
    since = now - timedelta(seconds=bounds.delay_seconds)
    past = sorted(history, key=lambda item: item.at)
    if bounds.delay_seconds > 0 and (not past or past[0].at > since):
        return min(current, bounds.maximum)
    recent = [item.replicas for item in past if item.at >= since]
    return min(bounds.maximum, max([needed, *recent]))


def plan_embedder(index: MemoryIndex, observed: Observed, images: Images, *, database: Verdict, replicas: int) -> Step:
    """Return the verdict on the embedder, and the writes that make its objects as specified."""
    if not index.runs_embedder:
        return Step(_unmanaged_verdict(index, observed), delete_embedder(index, observed, resources.COMPONENT))
    if observed.embedder is None and not database.holds:
        return waiting_for("the database")
    objects = resources.objects(index, images, replicas=replicas)
    return Step(_verdict(index, observed, replicas), apply_drifted(observed, *objects))


def delete_embedder(index: MemoryIndex, observed: Observed, component: str) -> tuple[Action, ...]:
    """Return the deletions of those of an embedder's objects that exist."""
    name = f"{index.name}-{component}"
    kinds = [kind for kind in ("Deployment", "Service", "NetworkPolicy") if (kind, name) in observed.children]
    return tuple(Delete(kind, index.namespace, name) for kind in kinds)


def fallen_back_to_cpu(index: MemoryIndex, loads: tuple[EmbedderLoad, ...]) -> EmbedderLoad | None:
    """Return a pod that computes on the CPU although the specification demands a GPU."""
    if index.spec.embedder.gpu_layers == 0:
        return None
    return next((load for load in loads if load.device == "cpu"), None)


def _unmanaged_verdict(index: MemoryIndex, observed: Observed) -> Verdict:
    """Return whether an external embedder or a hosted provider can be used."""
    if observed.external:
        return failed_step(observed.external).verdict
    url = resources.embedder_url(index)
    if index.hosted:
        provider = index.spec.embedding.provider
        return Verdict.yes(Reason.AVAILABLE, f"{provider} embeds, at {url}; sensitive rows are never sent there.")
    return Verdict.yes(Reason.AVAILABLE, f"The external embedder at {url} answers.")


def _verdict(index: MemoryIndex, observed: Observed, replicas: int) -> Verdict:
    name = f"Deployment {index.namespace}/{index.name}-embedder"
    if observed.embedder is None:
        return Verdict.no(Reason.STARTING, f"{name} is being created.")
    pods = [pod for pod in observed.pods_of(resources.COMPONENT) if not pod.deleting]
    problem = next((pod.problem for pod in pods if pod.problem), None)
    if observed.embedder.ready > 0:
        note = f" {problem.message}" if problem and observed.embedder.ready < replicas else ""
        return Verdict.yes(Reason.AVAILABLE, f"{name} serves.{note}")
    if replicas == 0:
        return Verdict.yes(Reason.SCALED_TO_ZERO, f"{name} has no pods, since nothing is queued and minReplicas is 0.")
    return _not_ready(index, observed, name, problem)


def _not_ready(index: MemoryIndex, observed: Observed, name: str, problem: Problem | None) -> Verdict:
    """Return why no pod serves; the most exact cause comes first."""
    on_cpu = fallen_back_to_cpu(index, observed.loads)
    if on_cpu:
        return Verdict.no(
            Reason.GPU_NOT_USED, f"Pod {on_cpu.pod} computes on the CPU though spec.embedder.gpuLayers asks for a GPU."
        )
    if problem:
        return failed_step(problem).verdict
    if observed.embedder and observed.embedder.failure:
        return Verdict.no(Reason.POD_REJECTED, f"{name} cannot create pods: {observed.embedder.failure}")
    return Verdict.no(Reason.STARTING, f"{name} has no ready pod yet; the model is being loaded.")
