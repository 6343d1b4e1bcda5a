"""The interface of a subject, a measured program that turns texts into vectors, and the order of measuring subjects."""

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
    """A load of documents in requests of equal size; `tokens` is the length of each text.

    `concurrency` requests are sent at a time.
    """

    tokens: int
    concurrency: int
    requests: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> int:
        """The number of texts in all requests."""
        return sum(map(len, self.requests))


class QuerySubject(Protocol):
    """The interface of a measured program that embeds queries."""

    @property
    def name(self) -> str:
        """The program's name in tables and charts."""
        ...

    def run_query(self, text: str) -> float:
        """Embed one query while nothing else runs; return the seconds that this takes."""
        ...


class Subject(QuerySubject, Protocol):
    """The interface of a measured program that embeds documents and queries."""

    def run_documents(self, load: DocumentLoad) -> float:
        """Embed all documents of the load; return the seconds from the first request to the last response."""
        ...

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, by which a run checks that all programs compute the same vectors."""
        ...


def paired_rounds(subjects: Sequence[AnySubject], rounds: int, measure: Callable[[AnySubject, int], None]) -> None:
    """Measure every subject once in each round; every second round goes through the subjects in reverse order."""
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            measure(subject, number)


def check_agreement(subjects: Sequence[Subject], texts: Sequence[str], least: float = 0.995) -> float:
    """Return the smallest cosine similarity between a subject's vector of a text and the first subject's vector.

    Raises:
        ValueError: a subject's similarity is below `least`, so comparing the subject's speed would mean nothing.
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
    """Call `action` and return how many seconds the call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def median(values: Sequence[float]) -> float:
    """Return the median as a float."""
    return float(statistics.median(values))


def _unit(vectors: Vectors) -> Vectors:
    scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled
