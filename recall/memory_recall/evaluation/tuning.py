"""Chooses fusion settings for a store by its owner's labelled questions, and estimates their gain without bias.

If many settings are compared on the same questions, the best one looks better on these questions than it is on new
ones. Therefore the gain is estimated by nested cross-validation: for each fold a setting is chosen on the other folds,
and then measured on the questions of the fold. The interval of the gain is that of a paired bootstrap over these
held-out questions. The best setting over all questions is recommended if that interval lies above zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memory_recall.errors import InvalidInput
from memory_recall.evaluation.measures import Scores
from memory_recall.evaluation.significance import Comparison, compare
from memory_recall.search.fusion import Fusion

LEAST_QUESTIONS = 30  # fewer than this and an interval says nothing
FOLDS = 5
_SEED = 0


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning. `recall_10` and `ndcg_10` are the gains over the current fusion, on held-out questions."""

    questions: int
    chosen: Fusion
    recommended: bool
    recall_10: Comparison
    ndcg_10: Comparison


def settings(default: Fusion) -> list[Fusion]:
    """Return the fusion settings to try: first the default, then both fusion methods with various parameters."""
    tried = [default]
    for importance in (True, False):
        base = replace(default, importance=importance)
        tried += [replace(base, alpha=tenths / 10) for tenths in range(3, 10)]
        tried += [replace(base, alpha=alpha, lexical_scale="linear") for alpha in (0.5, 0.6, 0.7, 0.8)]
        tried += [replace(base, alpha=alpha, lexical_scale="list") for alpha in (0.5, 0.7, 0.8, 0.9)]
        tried += [replace(base, method="rrf", k=k) for k in (1.0, 10.0, 60.0)]
    return list(dict.fromkeys(tried))


def require_enough(questions: int) -> None:
    """Refuse to tune on too few questions.

    Raises:
        InvalidInput: there are fewer than `LEAST_QUESTIONS` questions.
    """
    if questions < LEAST_QUESTIONS:
        raise InvalidInput(
            f"{questions} labelled questions are too few to tune on.",
            f"Give at least {LEAST_QUESTIONS}; several hundred tell a small gain from chance.",
        )


def choose(scores: Mapping[Fusion, Sequence[Scores]], current: Fusion) -> Tuned:
    """Choose the best fusion setting.

    `scores` maps each setting to its scores; all settings are scored on the same questions in the same order. `current`
    is the setting to beat, and one of the keys of `scores`.
    """
    tried = list(scores)
    merit = np.array([_merits(scores[setting]) for setting in tried])
    count = merit.shape[1]
    require_enough(count)
    fold_of = np.random.default_rng(_SEED).permutation(count) % FOLDS
    per_fold = [tried[int(merit[:, fold_of != fold].mean(axis=1).argmax())] for fold in range(FOLDS)]
    held_out = [scores[per_fold[fold_of[number]]][number] for number in range(count)]
    before = scores[current]
    recall_10 = compare([one.recall_10 for one in before], [one.recall_10 for one in held_out], seed=_SEED)
    ndcg_10 = compare([one.ndcg_10 for one in before], [one.ndcg_10 for one in held_out], seed=_SEED)
    combined = compare(merit[tried.index(current)].tolist(), _merits(held_out), seed=_SEED)
    best = tried[int(merit.mean(axis=1).argmax())]
    recommended = combined.low > 0 and best != current
    return Tuned(count, best if recommended else current, recommended, recall_10, ndcg_10)


def _merits(scores: Sequence[Scores]) -> list[float]:
    return [(one.recall_10 + one.ndcg_10) / 2 for one in scores]
