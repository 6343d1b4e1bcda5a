"""What is measured: anything that turns texts into vectors, under one protocol."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Taker = TypeVar("Taker", bound="QuerySubject")  # the 3.12 syntax would exclude Python 3.11
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DocumentLoad:
    """Requests of equal size, so many of them in flight at once."""

    tokens: int
    concurrency: int
    requests: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> int:
        """Texts in all."""
        return sum(map(len, self.requests))


class QuerySubject(Protocol):
    """One way to embed a query."""

    @property
    def name(self) -> str:
        """As tables and charts call it."""
        ...

    def run_query(self, text: str) -> float:
        """Seconds that one query took, alone."""
        ...


class Subject(QuerySubject, Protocol):
    """One way to embed."""

    def run_documents(self, load: DocumentLoad) -> float:
        """Seconds from the first request to the last answer."""
        ...

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors themselves, to see that all subjects do the same work."""
        ...


def paired_rounds(subjects: Sequence[Taker], rounds: int, measure: Callable[[Taker, int], None]) -> None:
    """Lets every subject have its turn in each round; every other round goes the other way round."""
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            measure(subject, number)


def check_agreement(subjects: Sequence[Subject], texts: Sequence[str], least: float = 0.995) -> float:
    """The least cosine between any subject's vectors and the first's.

    Raises:
        ValueError: a subject computes something else, so comparing its speed would say nothing.
    """
    first = _unit(subjects[0].vectors(texts))
    worst = 1.0
    for subject in subjects[1:]:
        cosine = float((first * _unit(subject.vectors(texts))).sum(axis=1).min())
        if not cosine >= least:
            raise ValueError(f"{subject.name} and {subjects[0].name} disagree: cosine {cosine:.4f}, least {least}")
        worst = min(worst, cosine)
    return worst


def timed(action: Callable[[], object]) -> float:
    """Seconds that a call took."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))


def _unit(vectors: Vectors) -> Vectors:
    scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled
