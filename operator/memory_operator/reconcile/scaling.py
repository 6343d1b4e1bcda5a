"""How many embedder pods: as many as the queued work needs within the target, down only after the need has stayed low.

Work is measured in seconds of one pod: queued tokens over measured tokens per second. Up goes at once; down goes to
the most that was needed within the delay, so that a lull between two bursts costs no start of a model. Without a
measurement nothing changes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_operator.reconcile.observed import EmbedderLoad, Recommendation


@dataclass(frozen=True)
class Bounds:
    """What the specification allows and asks for."""

    minimum: int
    maximum: int
    target_seconds: float
    delay_seconds: float


def needed(loads: Iterable[EmbedderLoad], bounds: Bounds, *, current: int, bulk_workers: int, pending: bool) -> int:
    """What the work of this moment needs: `bulk_workers` pods of a backfill each keep one embedder busy."""
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
    now_needed: int, bounds: Bounds, *, current: int | None, history: Iterable[Recommendation], now: datetime
) -> int:
    """The replicas to set. A history that does not reach back over the whole delay cannot justify going down."""
    if current is None or now_needed >= current:
        return now_needed
    since = now - timedelta(seconds=bounds.delay_seconds)
    past = sorted(history, key=lambda item: item.at)
    if bounds.delay_seconds > 0 and (not past or past[0].at > since):
        return min(current, bounds.maximum)
    recent = [item.replicas for item in past if item.at >= since]
    return min(bounds.maximum, max([now_needed, *recent]))
