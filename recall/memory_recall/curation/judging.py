"""Asks a language model about the pairs that the rules find likely enough, and scores them by both.

The model sees the dates and the texts of the two memories, after an instruction and examples that are always the same.
Of its answer only the first token counts, and of that only how likely each token was. So a memory whose text addresses
the model can get a wrong score for its own pairs, and hardly a different one for others, in a file that a person reads.
Where the answer is neither Yes nor No, the rules' score stays.

Before any memory is sent, the model has to pass a trial (see `model_answers`).

A model leans towards one answer, more or less so by how the question is put. What counts is therefore how much surer
it is of a pair than on average (batch calibration: H. Zhou et al., Batch Calibration: Rethinking Calibration for
In-Context Learning and Prompt Engineering, ICLR 2024).

Answers take minutes, and a memory may become sensitive meanwhile. So both memories of a pair are looked up again each
time before their texts are sent, and all proposed pairs once more at the end.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

from memory_recall.curation.decisions import Action, Decider, Judgement, choose
from memory_recall.curation.features import Frequencies, Pair
from memory_recall.curation.known_models import KnownModel
from memory_recall.curation.model_answers import (
    ApprovedModel,
    JudgingModel,
    pass_trial,
    patiently,
    question_about,
    run_together,
)
from memory_recall.errors import (
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    Interrupted,
    MemoryIndexError,
)

LEAST_SCORE = 0.1
"""The score by the rules below which the model is not asked about a pair."""

MOST_PAIRS = 500
"""How many pairs the model is asked about unless the caller says otherwise."""

MAX_CHARACTERS = 8_000
"""The length of a text above which its pairs are not sent: a model may not take it, and half a text may mislead."""

_FARTHEST = 10.0  # log-odds from the median
_ENOUGH = 24  # answers, of which the mean is taken
_REFUSALS = 4  # in a row, after which the model is asked no more

Ids = tuple[int, int]
"""The ids of the older and of the newer memory of a pair."""

Lookup = Callable[[Sequence[Pair]], Awaitable[AbstractSet[Ids]]]
"""Returns which of the pairs are still what was read: neither memory sensitive, deleted, superseded or edited."""


@dataclass(frozen=True, slots=True)
class Judging:
    """What is proposed, best first, and how the model took part in it.

    `known_model` is the name of the model if it is known what its tokens weigh. `judged` counts the pairs whose score
    is the model's, too. The rules alone scored the others: `unusable` are those whose answer was neither Yes nor No, or
    that the model's server refused; about those of `not_judged` the model was not asked, or did not answer. `changed`
    counts the judged pairs for which something else is proposed than by the rules alone. `left_out` counts the pairs
    that are not proposed because a memory has become sensitive, deleted or superseded, or was edited. `failure` is the
    error after which the model was asked no more, or the interruption.
    """

    judgements: list[Judgement]
    known_model: str | None
    judged: int
    unusable: int
    not_judged: int
    changed: int
    left_out: int
    failure: MemoryIndexError | None


async def judge_by_model(
    model: JudgingModel,
    pairs: Sequence[Pair],
    scores: Sequence[float],
    frequencies: Frequencies,
    *,
    threshold: float,
    known: Sequence[KnownModel],
    lookup: Lookup,
    stop: asyncio.Event,
    most: int = MOST_PAIRS,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Judging:
    """Return what is proposed for the pairs if the model is asked about the `most` best ones of at least `LEAST_SCORE`.

    `scores` are those of the pairs by the rules; `frequencies` and `threshold` are as in `choose`. `known` are models
    of which it is known what their tokens weigh; that is used if `model` is found to be one of them. `progress` is
    called with the numbers of pairs that are done and that are to be asked about. A model that does not answer is asked
    again; if it stops answering, or when `stop` is set, the rules' scores stay for the rest.

    Raises:
        Interrupted: `stop` was set before the model had judged anything.
        JudgeUnfit: the model does not tell the examples of the trial apart.
        EmbedderUnauthorized: the API key is refused, and the model has judged nothing.
        EmbedderRejected: the requests are refused, and the model has judged nothing.
        EmbedderUnavailable: the model cannot be reached, and has judged nothing.
        EmbedderBroken: the answers do not say how likely they are, and none did.
    """
    by_rules = {pair.ids: score for pair, score in zip(pairs, scores, strict=True)}
    candidates = [pair for pair in pairs if by_rules[pair.ids] >= LEAST_SCORE]
    candidates.sort(key=lambda pair: (-by_rules[pair.ids], pair.newer.id, pair.older.id))
    short = [pair for pair in candidates if max(len(pair.older.content), len(pair.newer.content)) <= MAX_CHARACTERS]
    name = None
    asked = _Questions(short[:most], lookup, progress)
    combined: dict[Ids, float] = {}
    if short:
        approved = await pass_trial(model, known, stop)
        name = approved.recognised.name if approved.recognised else None
        await asked.ask(approved, stop)
        centred = _centred(asked.answers, approved.usual)
        combined = {ids: _combined(by_rules[ids], evidence) for ids, evidence in centred.items()}
    ruled = choose(pairs, scores, frequencies, threshold=threshold)
    left = [pair for pair in pairs if pair.ids not in asked.gone]
    scored = choose(left, [(by_rules | combined)[pair.ids] for pair in left], frequencies, threshold=threshold)
    judgements = _with_what_the_model_refuses(scored, ruled, combined)
    current = await lookup([one.pair for one in judgements])
    left_out = asked.gone | {one.pair.ids for one in judgements} - current
    judged, unusable = combined.keys() - left_out, asked.unusable - left_out
    proposed = [one for one in judgements if one.pair.ids in current]
    before, after = _actions(ruled), _actions(proposed)
    return Judging(
        proposed,
        known_model=name,
        judged=len(judged),
        unusable=len(unusable),
        not_judged=len({pair.ids for pair in candidates} - judged - unusable - left_out),
        changed=sum(after.get(ids, Action.ADD) is not before.get(ids, Action.ADD) for ids in judged),
        left_out=len(left_out),
        failure=asked.failure,
    )


def _centred(evidence: Mapping[Ids, float], usual: float) -> dict[Ids, float]:
    """Return the evidence of each answer minus the mean of all answers, or minus the usual mean if they are few.

    Evidence is first limited to `_FARTHEST` on either side of the median. So a text that makes the model answer
    absurdly hardly changes the scores of other pairs.
    """
    enough = len(evidence) >= _ENOUGH
    middle = median(evidence.values()) if enough else usual
    limited = {ids: min(max(one, middle - _FARTHEST), middle + _FARTHEST) for ids, one in evidence.items()}
    mean = fmean(limited.values()) if enough else usual
    return {ids: one - mean for ids, one in limited.items()}


def _combined(score: float, evidence: float) -> float:
    bounded = min(max(score, 1e-9), 1 - 1e-9)
    return 1 / (1 + math.exp(-(math.log(bounded / (1 - bounded)) + evidence)))


def _with_what_the_model_refuses(
    judgements: Sequence[Judgement], ruled: Sequence[Judgement], combined: Mapping[Ids, float]
) -> list[Judgement]:
    """Return the judgements, best first, and with them the pairs that the rules proposed and the model rejected.

    The action of a rejected pair is `ADD`: both memories stay as they are.
    """
    shown = {one.pair.ids for one in judgements}
    refused = [
        replace(one, score=combined[one.pair.ids], action=Action.ADD)
        for one in ruled
        if one.pair.ids in combined and one.pair.ids not in shown
    ]
    return [
        replace(one, decided_by=Decider.MODEL) if one.pair.ids in combined else one
        for one in sorted([*judgements, *refused], key=lambda one: -one.score)
    ]


def _actions(judgements: Sequence[Judgement]) -> dict[Ids, Action]:
    return {one.pair.ids: one.action for one in judgements}


class _Questions:
    """Asks about pairs, some at a time, and keeps the evidence of each answer."""

    def __init__(self, pairs: Sequence[Pair], lookup: Lookup, progress: Callable[[int, int], None]) -> None:
        self.answers: dict[Ids, float] = {}
        self.unusable: set[Ids] = set()
        self.gone: set[Ids] = set()
        self.failure: MemoryIndexError | None = None
        self._waiting = iter(pairs)
        self._lookup = lookup
        self._progress = progress
        self._total = len(pairs)
        self._answered = False
        self._refusals: list[MemoryIndexError] = []  # since the last answer

    async def ask(self, model: ApprovedModel, stop: asyncio.Event) -> None:
        """Ask about the pairs in their order until all are done, the model stops answering, or `stop` is set.

        Raises:
            MemoryIndexError: the model has answered nothing, and this is why; or a memory could not be looked up.
        """
        await run_together(partial(self._work, model), stop)
        if stop.is_set():
            self.failure = self.failure or Interrupted("The command was interrupted.")
        failure = self.failure or next(iter(self._refusals), None)
        if failure is not None and not self._answered:
            raise failure

    async def _work(self, model: ApprovedModel) -> None:
        for pair in self._waiting:
            await self._ask_about(model, pair)
            if self.failure is not None:
                return
            self._progress(len(self.answers) + len(self.unusable) + len(self.gone), self._total)

    async def _ask_about(self, model: ApprovedModel, pair: Pair) -> None:
        try:
            answered = await patiently(partial(self._answer_to, model, pair))
        except (EmbedderUnavailable, EmbedderUnauthorized) as error:
            self.failure = self.failure or error
            return
        except (EmbedderRejected, EmbedderBroken) as error:
            self.unusable.add(pair.ids)
            self._refusals.append(error)
            if len(self._refusals) >= _REFUSALS:
                self.failure = self.failure or error
            return
        if not answered:
            self.gone.add(pair.ids)
            return
        self._answered = True
        self._refusals.clear()

    async def _answer_to(self, model: ApprovedModel, pair: Pair) -> bool:
        """Ask the model about a pair, keep what it answers and return True.

        Return False without asking if a memory of the pair has changed since it was read, or has become sensitive.
        """
        if not await self._lookup([pair]):
            return False
        evidence = await model.answer_to(question_about(pair))
        if evidence is None:
            self.unusable.add(pair.ids)
        else:
            self.answers[pair.ids] = evidence
        return True
