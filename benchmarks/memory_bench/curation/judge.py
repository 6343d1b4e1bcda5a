"""Asks a language model about the pairs of the benchmark, as `memory curate find --judge` does."""

import asyncio
from collections.abc import Sequence

import numpy as np

from memory_bench.curation.fitting import Array, Chosen, Material
from memory_recall.curation.features import Pair
from memory_recall.curation.judging import Ids, Judging, judge_by_model
from memory_recall.curation.judging_examples import NO, TRIAL, YES
from memory_recall.curation.model_answers import JudgingModel, question_about


class RightAnswers:
    """Answers as the data set says, in place of a language model, which shows what right answers are worth.

    The answer is Yes for a pair that is in the set as a restatement, and No for any other.
    """

    def __init__(self, material: Material) -> None:
        kinds = material.truth.kinds
        self._answers = dict(one.turn for one in TRIAL) | {
            question_about(pair): YES for pair in material.pairs if pair.ids in kinds
        }

    async def first_token(self, _instruction: str, _examples: object, text: str, /) -> dict[str, float]:
        """Return the right answer to the question as the only token, with probability one."""
        return {self._answers.get(text, NO): 1.0}


async def judge_chosen(
    model: JudgingModel, material: Material, scores: Array, chosen: Chosen, threshold: float
) -> Judging:
    """Return what is proposed for the chosen pairs if the model is asked about each whose score is not too low.

    Raises:
        MemoryIndexError: the model is not fit, or stopped answering, so that the figures would not be its own.
    """
    numbers = [int(one) for one in np.flatnonzero(chosen)]
    judging = await judge_by_model(
        model,
        [material.pairs[one] for one in numbers],
        [float(scores[one]) for one in numbers],
        material.frequencies,
        threshold=threshold,
        lookup=_unchanged,
        stop=asyncio.Event(),
        most=len(numbers),
    )
    if judging.failure is not None:
        raise judging.failure
    return judging


async def _unchanged(pairs: Sequence[Pair]) -> set[Ids]:
    """Return all pairs: nobody edits the memories of a data set."""
    return {pair.ids for pair in pairs}
