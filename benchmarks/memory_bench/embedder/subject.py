"""The interface of a subject, which is anything that turns texts into vectors, and how subjects take turns."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

AnySubject = TypeVar("AnySubject", bound="QuerySubject")  # the 3.12 syntax would exclude Python 3.11
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DocumentLoad:
    """Requests of equal size, of which `concurrency` are sent at once; `tokens` is the length of each text."""

    tokens: int
    concurrency: int
    requests: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> int:
        """The number of texts in all requests."""
        return sum(map(len, self.requests))


class QuerySubject(Protocol):
    """A way to embed a query."""

    @property
    def name(self) -> str:
        """The name in tables and charts."""
        ...

    def run_query(self, text: str) -> float:
        """Return the seconds of one query while nothing else runs."""
        ...


class Subject(QuerySubject, Protocol):
    """A way to embed documents and queries."""

    def run_documents(self, load: DocumentLoad) -> float:
        """Return the seconds from the first request to the last response."""
        ...

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors, which show that all subjects compute the same."""
        ...


def paired_rounds(subjects: Sequence[AnySubject], rounds: int, measure: Callable[[AnySubject, int], None]) -> None:
    """Give every subject its turn in each round; every second round has the reverse order."""
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            measure(subject, number)


def check_agreement(subjects: Sequence[Subject], texts: Sequence[str], least: float = 0.995) -> float:
    """Return the least cosine between the vectors of any subject and those of the first.

    Raises:
        ValueError: a cosine is below `least`, so comparing that subject's speed would mean nothing.
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
    """Return the seconds of a call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(statistics.median(values))


def _unit(vectors: Vectors) -> Vectors:
    scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled
