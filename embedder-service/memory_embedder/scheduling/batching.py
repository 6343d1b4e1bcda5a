"""Which waiting texts make up the next batch: a pure decision.

Attention over a batch costs more than its texts alone, and a batch once begun cannot be interrupted, so a batch is
filled up to a token budget and no further. A single text longer than the budget goes alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Sized(Protocol):
    """Anything that counts its tokens."""

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        ...


T = TypeVar("T", bound=Sized)  # the 3.12 syntax would exclude Python 3.11


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """The bounds of one batch."""

    tokens: int
    sequences: int


def take_batch(waiting: deque[T], budget: BatchBudget) -> list[T]:
    """Removes the oldest items that fit together, in order; at least one."""
    batch: list[T] = []
    used = 0
    while waiting and len(batch) < budget.sequences:
        size = waiting[0].tokens
        if batch and used + size > budget.tokens:
            break
        batch.append(waiting.popleft())
        used += size
    return batch
