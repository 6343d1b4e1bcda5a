"""Asks a language model about the pairs of the benchmark, as `memory curate find --judge` does."""

import asyncio
from collections.abc import Collection, Sequence

import numpy as np
from rich.progress import Progress

from memory_bench.curation.fitting import Array, Chosen, Material
from memory_bench.report import console
from memory_recall.curation.features import Pair
from memory_recall.curation.judging import Ids, Judging, judge_by_model
from memory_recall.curation.judging_examples import NO, TRIAL, YES
from memory_recall.curation.known_models import KnownModel
from memory_recall.curation.model_answers import JudgingModel, question_about


class GivenAnswers:
    """Answers Yes for given pairs and No for all others, in place of a language model; it always passes the trial."""

    def __init__(self, material: Material, yes: Collection[Ids]) -> None:
        self._answers = dict(one.turn for one in TRIAL) | {
            question_about(pair): YES for pair in material.pairs if pair.ids in yes
        }

    async def first_token(self, _instruction: str, _examples: object, text: str, /, *, most: int) -> dict[str, float]:  # noqa: ARG002  (the only token is enough)
        """Return the answer to the question as the only token, with probability one."""
        return {self._answers.get(text, NO): 1.0}


async def judge_chosen(
    model: JudgingModel,
    material: Material,
    scores: Array,
    chosen: Chosen,
    threshold: float,
    *,
    known: Sequence[KnownModel] = (),
) -> Judging:
    """Return what is proposed for the chosen pairs if the model is asked about each whose score is not too low.

    `known` holds what the model's tokens weigh, if that is to be used.

    Raises:
        MemoryIndexError: the model is not fit, or stopped answering, so that the figures would not be its own.
    """
    numbers = [int(one) for one in np.flatnonzero(chosen)]
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("Asking the language model", total=None)
        judging = await judge_by_model(
            model,
            [material.pairs[one] for one in numbers],
            [float(scores[one]) for one in numbers],
            material.frequencies,
            threshold=threshold,
            known=known,
            lookup=_unchanged,
            stop=asyncio.Event(),
            most=len(numbers),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if judging.failure is not None:
        raise judging.failure
    return judging


async def _unchanged(pairs: Sequence[Pair]) -> set[Ids]:
    """Return all pairs: nobody edits the memories of a data set."""
    return {pair.ids for pair in pairs}
