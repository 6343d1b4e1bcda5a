"""Decide how many embedder pods run.

Work is measured in seconds of one pod: queued tokens over measured tokens per second. The number rises at once to what
finishes the queued work within the target. It falls to the most that was needed within the delay, so that a pause
between two bursts costs no start of a model. Without a measurement it stays.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.facts import EmbedderLoad, Observed, Recommendation
from memory_operator.reconcile.jobs import active_job


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
