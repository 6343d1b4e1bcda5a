"""Ranks the questions of labelled sets with the dense leg's fifty taken from the first candidates of each kind.

The candidates are those of an exact search by the kind's expression, so the result is the most that an index can reach.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memory_bench.harness.dataset import Dataset
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.index_study.designs import CANDIDATES, SMALLER, Kind
from memory_bench.index_study.rankings import Places, candidates, nearest
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.recall.evidence import Evidence, gather, read_lexemes
from memory_bench.reference_fusion import Candidate, fuse
from memory_bench.studies.questions import scopes
from memory_recall import Fusion
from memory_recall.evaluation.measures import DEPTH
from memory_recall.hnsw.search_effort import DENSE_DEPTH
from memory_recall.search.fusion import default_fusion

Ranking = Literal["dense", "hybrid"]
RANKINGS: tuple[Ranking, ...] = ("dense", "hybrid")
_MEASURE = "recall@10"
_TODAY: Kind = "halves"


@dataclass(frozen=True, slots=True)
class SetQuality:
    """The recall@10 of one set by ranking: today's, and by kind and number of candidates."""

    name: str
    questions: int
    today: Mapping[Ranking, float]
    smaller: Mapping[tuple[Kind, int], Mapping[Ranking, float]]

    def change(self, kind: Kind, count: int, ranking: Ranking) -> float:
        """Return by how much recall@10 changes with a kind's first `count` candidates."""
        return self.smaller[kind, count][ranking] - self.today[ranking]


def measure_quality(dataset: Dataset, embedded: EmbeddedSet) -> SetQuality:
    """Score the questions of one set with today's dense leg, and with that of each kind and number of candidates."""
    database = BenchmarkDatabase()
    try:
        database.fill(dataset.memories, None)
        database.pool("plain")  # opened here: no coroutine can wait for it
        evidence = gather(dataset, read_lexemes(dataset, database), embedded)
    finally:
        database.close()
    scorer = Scorer(dataset.queries)
    fusion, importance = default_fusion(embedded.model), {one.id: one.importance for one in dataset.memories}
    found: dict[tuple[Kind, int], dict[Ranking, list[list[int]]]] = {}
    for numbers, legs in _legs(dataset, embedded):
        for key, leg in legs.items():
            lists = found.setdefault(key, {one: [[] for _ in dataset.queries] for one in RANKINGS})
            for number, dense in zip(numbers, leg, strict=True):
                lists["dense"][number] = [memory for memory, _ in dense.best[:DEPTH]]
                lists["hybrid"][number] = hybrid(evidence[number], dense, fusion, importance)[:DEPTH]
    scored = {key: {one: _mean(scorer, lists[one]) for one in RANKINGS} for key, lists in found.items()}
    today = scored.pop((_TODAY, DENSE_DEPTH))
    return SetQuality(dataset.name, len(dataset.queries), today, scored)


@dataclass(frozen=True, slots=True)
class DenseLeg:
    """The nearest fifty that a dense leg found, as pairs of id and cosine, and the cosines of all of its scope."""

    best: Sequence[tuple[int, float]]
    cosines: Mapping[int, float]


def hybrid(evidence: Evidence, dense: DenseLeg, fusion: Fusion, importance: Mapping[int, float]) -> list[int]:
    """Return the ids of a hybrid recall with this dense leg, the best first."""
    lexical_rank = {memory: rank for rank, memory in enumerate(evidence.lexical[:DENSE_DEPTH], start=1)}
    dense_rank = {memory: rank for rank, (memory, _) in enumerate(dense.best, start=1)}
    every = [
        Candidate(
            memory,
            importance[memory],
            lexical_rank.get(memory),
            evidence.lexical_scores.get(memory, 0.0),
            dense_rank.get(memory),
            dense.cosines[memory],
        )
        for memory in dict.fromkeys([*lexical_rank, *dense_rank])
    ]
    return [one.id for one in fuse(every, fusion, max_lexical_score=evidence.max_lexical_score)]


def _legs(
    dataset: Dataset, embedded: EmbeddedSet
) -> Iterator[tuple[Sequence[int], dict[tuple[Kind, int], list[DenseLeg]]]]:
    """Yield, for each scope, its questions' numbers and their dense legs by kind and number of candidates."""
    mean = embedded.memories.mean(axis=0)
    for scope in scopes(dataset):
        rows, asked = embedded.memories[list(scope.places)], embedded.queries[list(scope.numbers)]
        ids = [dataset.memories[place].id for place in scope.places]
        cosines = asked.astype(np.float64) @ rows.astype(np.float64).T
        legs = {(_TODAY, DENSE_DEPTH): list(_reordered(ids, cosines, nearest(rows, asked, DENSE_DEPTH)))}
        for kind in SMALLER:
            first = candidates(kind, rows, asked, max(CANDIDATES), mean)
            legs |= {(kind, count): list(_reordered(ids, cosines, first[:, :count])) for count in CANDIDATES}
        yield scope.numbers, legs


def _reordered(ids: Sequence[int], cosines: "np.typing.NDArray[np.float64]", first: Places) -> Iterable[DenseLeg]:
    for row, places in zip(cosines, first, strict=True):
        ordered = sorted(places.tolist(), key=lambda place: (-row[place], ids[place]))[:DENSE_DEPTH]
        known = dict(zip(ids, row.tolist(), strict=True))
        yield DenseLeg([(ids[place], float(row[place])) for place in ordered], known)


def _mean(scorer: Scorer, rankings: Sequence[Sequence[int]]) -> float:
    return float(np.mean([one[_MEASURE] for one in scorer.score(rankings)]))
