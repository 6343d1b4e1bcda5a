"""Cuts rows into requests by their tokens, so that a request of long memories costs no more than one of short ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memory_recall.indexing.queue_sql import PendingRow

_CHARACTERS_PER_TOKEN = 4  # of English prose; the embedder counts exactly, a plan need not


@dataclass(frozen=True)
class BatchLimits:
    """How large a request may become; one row always fits, however long."""

    tokens: int = 2048
    rows: int = 32
    max_tokens_per_row: int = 512  # a longer text is truncated by the embedder and costs no more than this


def estimated_tokens(text: str, limits: BatchLimits) -> int:
    """Roughly what a text will cost."""
    return min(len(text) // _CHARACTERS_PER_TOKEN + 2, limits.max_tokens_per_row)


def batches(rows: Iterable[PendingRow], limits: BatchLimits) -> Iterator[list[PendingRow]]:
    """Consecutive rows in batches that stay within the limits."""
    batch: list[PendingRow] = []
    tokens = 0
    for row in rows:
        cost = estimated_tokens(row.text, limits)
        if batch and (len(batch) >= limits.rows or tokens + cost > limits.tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(row)
        tokens += cost
    if batch:
        yield batch
