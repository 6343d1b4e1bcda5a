"""Measures how well two judgements of the same memories agree beyond chance."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memory_recall.contrib.labelling.labels import Labels
from memory_recall.evaluation.judgements import RELEVANT_FROM


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cohen's kappa of the memories that were judged twice, -1 to 1, or None where it is undefined.

    `grades` compares the four grades, and `relevant` only whether a memory answers its question (grade 2 or 3), which
    is what recall@k and MRR count.
    """

    judged_twice: int
    grades: float | None
    relevant: float | None


def cohens_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Return the agreement of two raters beyond chance: (observed - expected) / (1 - expected).

    `observed` is the share of pairs with equal categories. `expected` is this share for raters who choose categories
    independently, each as often as in `pairs`. Source: J. Cohen, "A coefficient of agreement for nominal scales",
    Educational and Psychological Measurement 20 (1960), 37-46. Without pairs, or if both raters give one and the same
    category only, kappa is undefined, and the result is None.
    """
    if not pairs:
        return None
    observed = sum(first == second for first, second in pairs) / len(pairs)
    firsts, seconds = Counter(first for first, _ in pairs), Counter(second for _, second in pairs)
    expected = sum(count * seconds[category] for category, count in firsts.items()) / len(pairs) ** 2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def agreement(labels: Labels) -> Agreement:
    """Return the agreement of the two rounds of judgements of the questions that were not left out."""
    pairs = [
        (grade, second[memory_id])
        for question in labels.questions
        for second in [labels.grades.get((question.query_id, 2), {})]
        for memory_id, grade in labels.grades.get((question.query_id, 1), {}).items()
        if memory_id in second and memory_id not in labels.withdrawn
    ]
    relevant = [(int(first >= RELEVANT_FROM), int(second >= RELEVANT_FROM)) for first, second in pairs]
    return Agreement(len(pairs), cohens_kappa(pairs), cohens_kappa(relevant))
