"""An ablation of hybrid recall: ranks the memories for each question with and without each leg.

There are four configurations. A has the lexical, the dense and the graph leg; B has the lexical and the dense leg; C
has the dense leg alone; D has the lexical leg alone. All have the sets' importance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from memory_bench.graph.sets import rankings
from memory_bench.graph.settings import Setting
from memory_bench.harness.scoring import Scorer
from memory_bench.recall.evidence import Evidence
from memory_bench.reference_fusion import Candidate, fuse
from memory_bench.studies.questions import LabelledSet
from memory_recall.evaluation.measures import DEPTH

CONFIGURATIONS = {"A": "lexical, dense, graph", "B": "lexical, dense", "C": "dense", "D": "lexical"}

Scores = Mapping[str, Sequence[Mapping[str, float]]]
"""The scores of each question by measure, for each configuration."""

_KEPT: Mapping[str, Callable[[Candidate], Candidate | None]] = {
    "B": lambda one: one,
    "C": lambda one: replace(one, lexical_rank=None, lexical_score=None) if one.dense_rank else None,
    "D": lambda one: replace(one, dense_rank=None, dense_score=None) if one.lexical_rank else None,
}


def ablate(labelled: LabelledSet, setting: Setting | None) -> Scores:
    """Score all configurations on one set; without a setting, A is B."""
    scorer = Scorer(labelled.dataset.queries)
    found = {
        name: scorer.score([_fused(labelled, one, kept) for one in labelled.evidence]) for name, kept in _KEPT.items()
    }
    return {"A": found["B"] if setting is None else scorer.score(rankings(labelled, setting)), **found}


def _fused(labelled: LabelledSet, one: Evidence, kept: Callable[[Candidate], Candidate | None]) -> list[int]:
    candidates = [each for each in map(kept, one.candidates) if each is not None]
    fused = fuse(candidates, labelled.fusion, max_lexical_score=one.max_lexical_score)
    return [each.id for each in fused[:DEPTH]]


def select(scores: Scores, configuration: str, measure: str, chosen: "np.typing.NDArray[np.bool_]") -> list[float]:
    """Return the scores of some of the questions in one configuration and measure."""
    return [one[measure] for one, taken in zip(scores[configuration], chosen, strict=True) if taken]
