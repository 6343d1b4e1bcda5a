"""Has a language model decide about the pairs of the benchmark, as `memory curate find --judge` does."""

from collections.abc import Sequence

import numpy as np

from memory_bench.curation.fitting import Array, Chosen, Material, proposals
from memory_recall import LanguageModel
from memory_recall.curation.features import Pair
from memory_recall.curation.judging import Ids, Judging, judge_by_model


async def judge_chosen(
    model: LanguageModel, material: Material, scores: Array, chosen: Chosen, threshold: float
) -> Judging:
    """Return what is proposed for the chosen pairs if the model decides about all that it is asked about at all.

    Raises:
        MemoryIndexError: the model stopped answering, so that the figures would not be its own.
    """
    numbers = [int(one) for one in np.flatnonzero(chosen)]
    judging = await judge_by_model(
        model,
        [material.pairs[one] for one in numbers],
        [float(scores[one]) for one in numbers],
        proposals(material, scores, chosen, threshold),
        lookup=_unchanged,
        most=len(numbers),
    )
    if judging.failure is not None:
        raise judging.failure
    return judging


async def _unchanged(pairs: Sequence[Pair]) -> set[Ids]:
    """Return all pairs: nobody edits the memories of a data set."""
    return {pair.ids for pair in pairs}
