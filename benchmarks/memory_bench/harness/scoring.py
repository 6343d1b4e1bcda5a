"""Scores rankings with the library ir-measures, under the names and with the meaning of `memory evaluate`'s measures.

Every study of the benchmarks takes its scores from here. `memory evaluate` computes its measures by itself, so that its
users need not install this library; a test compares the two.
"""

from collections.abc import Mapping, Sequence

import ir_measures
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

from memory_bench.harness.dataset import Query
from memory_recall.evaluation.judgements import RELEVANT_FROM
from memory_recall.schema.columns.keys import MemoryId

MEASURES: Mapping[str, ir_measures.Measure] = {
    "recall@5": R(rel=RELEVANT_FROM) @ 5,
    "recall@10": R(rel=RELEVANT_FROM) @ 10,
    "ndcg@10": nDCG @ 10,
    "mrr": RR(rel=RELEVANT_FROM) @ 10,
}


class Scorer:
    """Scores rankings of the same questions; the judgements are prepared once.

    A question is known by its place, so that a set may contain the same question more than once.
    """

    def __init__(self, queries: Sequence[Query]) -> None:
        judgements = [
            Qrel(str(place), str(memory), grade)
            for place, query in enumerate(queries)
            for memory, grade in (query.grades or dict.fromkeys(query.relevant, RELEVANT_FROM)).items()
        ]
        self._count = len(queries)
        self._evaluator = ir_measures.evaluator(MEASURES.values(), judgements)

    def score(self, rankings: Sequence[Sequence[MemoryId]]) -> list[dict[str, float]]:
        """Return the scores of each question's ranking by measure, in the order of the questions.

        A memory that a ranking repeats counts only where it stands first.
        """
        run = [
            ScoredDoc(str(place), str(memory), -rank)
            for place, ranking in enumerate(rankings)
            for rank, memory in enumerate(dict.fromkeys(ranking))
        ]
        found: list[dict[str, float]] = [{} for _ in range(self._count)]
        names = {measure: name for name, measure in MEASURES.items()}
        for metric in self._evaluator.iter_calc(run):
            found[int(metric.query_id)][names[metric.measure]] = metric.value
        return found
