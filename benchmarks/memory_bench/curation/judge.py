"""Has a language model decide about the pairs of the benchmark, as `memory curate find --judge` does."""

import json
from collections.abc import Sequence

import numpy as np

from memory_bench.curation.fitting import Array, Chosen, Material, proposals
from memory_bench.curation.truth import Kind
from memory_recall import LanguageModel
from memory_recall.curation.decisions import Action
from memory_recall.curation.features import Pair
from memory_recall.curation.judging import Ids, Judging, judge_by_model

_ACTIONS: dict[Kind, Action] = {"replaces": Action.SUPERSEDE, "says_again": Action.UPDATE}


class RightAnswers:
    """Answers as the data set says, in place of a language model, which shows what right answers are worth.

    A pair that is in the set as a restatement is SUPERSEDE or UPDATE by its kind, and any other is ADD.
    """

    def __init__(self, material: Material) -> None:
        kinds = material.truth.kinds
        self._actions = {
            (pair.older.content, pair.newer.content): _ACTIONS[kinds[pair.ids]]
            for pair in material.pairs
            if pair.ids in kinds
        }

    async def complete(self, _instruction: str, text: str, /, *, most_tokens: int) -> str:  # noqa: ARG002  (the interface has it)
        """Return the action of the pair whose texts are in the question."""
        asked = json.loads(text)
        return self._actions.get((asked["older"]["text"], asked["newer"]["text"]), Action.ADD)


async def judge_chosen(
    model: LanguageModel, material: Material, scores: Array, chosen: Chosen, threshold: float
) -> Judging:
    """Return what is proposed for the chosen pairs if the model decides about each whose score is not too low.

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
