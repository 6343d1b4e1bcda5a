"""Runs one retriever over one labelled set and measures scores of each question, latency, build time and index size."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.progress import Progress

from memory_bench.harness.dataset import Dataset, Query
from memory_bench.harness.retrievers import RetrieverAdapter
from memory_bench.harness.scoring import MEASURES, Scorer
from memory_bench.report import console

RETRIEVE_DEPTH = 30  # the memory API's default limit, more than any measure looks at


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of one question: the ids that were retrieved, best first, and the score of each measure."""

    query_id: str
    stratum: str
    retrieved: tuple[int, ...]
    scores: Mapping[str, float]
    milliseconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of one retriever on one labelled set."""

    retriever: str
    dataset: str
    answers: tuple[Answered, ...]
    build_seconds: float
    index_bytes: int | None

    def means(self, stratum: str | None = None) -> dict[str, float]:
        """Return the mean of each measure over all questions, or over the questions of one stratum."""
        chosen = [answer.scores for answer in self.answers if stratum in {None, answer.stratum}]
        return {name: float(np.mean([scores[name] for scores in chosen])) for name in MEASURES}

    def latency(self) -> dict[str, float]:
        """Return the median and the 95th percentile of the time that a question takes, in milliseconds."""
        times = [answer.milliseconds for answer in self.answers]
        return {"p50": float(np.percentile(times, 50)), "p95": float(np.percentile(times, 95))}

    def scores(self, measure: str, stratum: str | None = None) -> dict[str, float]:
        """Return the score of each question in one measure, by question id, for all questions or for one stratum."""
        return {answer.query_id: answer.scores[measure] for answer in self.answers if stratum in {None, answer.stratum}}

    def summary(self) -> dict[str, object]:
        """Return means, latency, build time and index size, as a dictionary for JSON."""
        strata = sorted({answer.stratum for answer in self.answers})
        return {
            "retriever": self.retriever,
            "dataset": self.dataset,
            "means": self.means(),
            "strata": {stratum: self.means(stratum) for stratum in strata},
            "latency_ms": self.latency(),
            "build_seconds": self.build_seconds,
            "index_bytes": self.index_bytes,
        }

    def by_question(self) -> dict[str, object]:
        """Return the summary and the ids and scores of every question, without any text, as a dictionary for JSON."""
        return {**self.summary(), "answers": [asdict(answer) for answer in self.answers]}


def run(retriever: RetrieverAdapter, dataset: Dataset) -> RunResult:
    """Build the index, search once for every question, and close the retriever, while a progress bar is shown."""
    try:
        started = time.perf_counter()
        retriever.build_index(dataset.memories)
        built = time.perf_counter() - started
        with Progress(console=console, transient=True) as bar:
            queries = bar.track(dataset.queries, description=retriever.name)
            found = [_search(retriever, query) for query in queries]
        scores = Scorer(dataset.queries).score([retrieved for retrieved, _ in found])
        answers = tuple(
            Answered(query.query_id, query.stratum, retrieved, score, milliseconds)
            for query, (retrieved, milliseconds), score in zip(dataset.queries, found, scores, strict=True)
        )
        return RunResult(retriever.name, dataset.name, answers, built, retriever.index_size_bytes())
    finally:
        retriever.close()


def _search(retriever: RetrieverAdapter, query: Query) -> tuple[tuple[int, ...], float]:
    """Return the ids that were retrieved, best first, and how many milliseconds this took."""
    started = time.perf_counter()
    retrieved: Sequence[int] = retriever.retrieve(query.text, RETRIEVE_DEPTH, query.scope)
    milliseconds = (time.perf_counter() - started) * 1e3
    return tuple(retrieved), milliseconds
