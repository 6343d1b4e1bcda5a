"""Generates memories: long enough to keep an embedder busy, different in every row, and the same in every run."""

import csv
import io
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WORDS = """
backup router kernel garden invoice ticket summer printer bridge cluster window recipe battery theatre passport charger
museum concert lantern harbour compiler notebook marathon orchard compass ledger thermostat keyboard satellite blanket
saddle violin pepper railway island curtain engine market winter dentist
"""


@dataclass(frozen=True)
class Row:
    """One memory."""

    id: int
    content: str
    is_sensitive: bool = False


def rows(count: int, *, words: int = 28, sensitive_every: int = 10, first: int = 1) -> list[Row]:
    """Return `count` memories with ids from `first` on; every `sensitive_every`-th memory is sensitive."""
    dice = random.Random(first)  # noqa: S311 - the same texts in every run are wanted
    return [
        Row(
            number,
            f"note {number}: " + " ".join(dice.choices(WORDS.split(), k=words)),
            is_sensitive=number % sensitive_every == 0,
        )
        for number in range(first, first + count)
    ]


def as_csv(memories: Iterable[Row]) -> str:
    """Return the memories as CSV for `COPY ... FROM STDIN (FORMAT csv)`."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerows((one.id, one.content, one.is_sensitive) for one in memories)
    return out.getvalue()


def sensitive(memories: Sequence[Row]) -> int:
    """Return how many of the memories are sensitive and must never get a vector."""
    return sum(one.is_sensitive for one in memories)
