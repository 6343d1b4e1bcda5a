"""Runs one retriever over one set: scores question by question, latency, build time and index size."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from memory_bench.dataset import Dataset, Query
from memory_bench.retriever import Adapted
from memory_recall.evaluation import measures

RETRIEVE_DEPTH = 20  # deeper than every measure's cut-off


@dataclass(frozen=True, slots=True)
class Answered:
    """One question's result."""

    query_id: str
    stratum: str
    retrieved: tuple[int, ...]
    scores: Mapping[str, float]
    milliseconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """One retriever's results on one set."""

    retriever: str
    dataset: str
    answers: tuple[Answered, ...]
    build_seconds: float
    index_bytes: int | None

    def means(self, stratum: str | None = None) -> dict[str, float]:
        """Each measure's mean, over everything or one stratum."""
        chosen = [answer.scores for answer in self.answers if stratum in {None, answer.stratum}]
        return {name: float(np.mean([scores[name] for scores in chosen])) for name in measures.MEASURES}

    def latency(self) -> dict[str, float]:
        """Milliseconds a question."""
        times = [answer.milliseconds for answer in self.answers]
        return {"p50": float(np.percentile(times, 50)), "p95": float(np.percentile(times, 95))}

    def scores(self, measure: str, stratum: str | None = None) -> dict[str, float]:
        """One measure by question, over everything or one stratum."""
        return {answer.query_id: answer.scores[measure] for answer in self.answers if stratum in {None, answer.stratum}}

    def to_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        strata = sorted({answer.stratum for answer in self.answers})
        return {
            "retriever": self.retriever,
            "dataset": self.dataset,
            "means": self.means(),
            "strata": {stratum: self.means(stratum) for stratum in strata},
            "latency_ms": self.latency(),
            "build_seconds": self.build_seconds,
            "index_bytes": self.index_bytes,
            "answers": [asdict(answer) for answer in self.answers],
        }


def run(
    retriever: Adapted,
    dataset: Dataset,
    *,
    depth: int = RETRIEVE_DEPTH,
    progress: Callable[[], None] = lambda: None,
) -> RunResult:
    """Build the index, then ask every question once."""
    started = time.perf_counter()
    retriever.build_index(dataset.memories)
    built = time.perf_counter() - started
    answers = []
    for query in dataset.queries:
        answers.append(_ask(retriever, query, depth))
        progress()
    return RunResult(retriever.name, dataset.name, tuple(answers), built, retriever.index_size_bytes())


def _ask(retriever: Adapted, query: Query, depth: int) -> Answered:
    started = time.perf_counter()
    retrieved: Sequence[int] = retriever.retrieve(query.text, depth, query.scope)
    milliseconds = (time.perf_counter() - started) * 1e3
    scores = measures.score(retrieved, query.relevant).named()
    return Answered(query.query_id, query.stratum, tuple(retrieved), scores, milliseconds)
