"""Divides what is to be embedded into requests, and spaces requests out."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

_CHARACTERS_PER_TOKEN = 3  # fewer than English prose has, so that an estimate errs on the safe side

T = TypeVar("T")


def estimated_tokens(texts: Sequence[str]) -> int:
    """Estimate the number of tokens of the texts; the estimate is more often too high than too low."""
    return sum(len(text) // _CHARACTERS_PER_TOKEN + 2 for text in texts)


def divided(items: Iterable[T], cost: Callable[[T], int], *, most_items: int, most_cost: int) -> Iterator[list[T]]:
    """Divide items, in their order, into lists of at most so many items and so much cost.

    An item that alone costs more gets a list of its own.
    """
    part: list[T] = []
    total = 0
    for item in items:
        added = cost(item)
        if part and (len(part) >= most_items or total + added > most_cost):
            yield part
            part, total = [], 0
        part.append(item)
        total += added
    if part:
        yield part


class Pacer:
    """Spaces out work by the seconds that each piece of it may take at most within a rate."""

    def __init__(self) -> None:
        self._free_at = 0.0  # by the monotonic clock

    async def admit(self, seconds: float) -> None:
        """Wait until the pieces before have had their seconds; the next piece waits `seconds` longer."""
        now = time.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + seconds
        if start > now:
            await asyncio.sleep(start - now)
