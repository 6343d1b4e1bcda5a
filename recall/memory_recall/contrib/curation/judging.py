"""Asks a language model about the pairs that the rules find likely enough, and scores them by both (ADR 34).

The model sees the dates and the texts of the two memories, after an instruction and examples that are always the same.
Of its answer only the words Yes and No count, by how much likelier one is than the other. So a memory whose text
addresses the model can get a wrong score for its own pairs, and hardly a different one for others, in a file that a
person reads. Where the answer is neither Yes nor No, the rules' score stays.

A model leans towards one answer, more or less so by how the question is put. What counts is therefore how much surer
it is of a pair than on average (batch calibration: H. Zhou et al., Batch Calibration: Rethinking Calibration for
In-Context Learning and Prompt Engineering, ICLR 2024).

Answers take minutes, and a memory may become sensitive meanwhile. So both memories of a pair are looked up again each
time before their texts are sent, once there is a connection to send them on, and all proposed pairs once more at the
end.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Protocol

from memory_recall.contrib.curation.decisions import Decider, Judgement, choose
from memory_recall.contrib.curation.features import Frequencies, Pair
from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.errors import (
    DatabaseUnreachable,
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnavailable,
    first_of,
)
from memory_recall.retrying import Backoff, retry
from memory_recall.schema.columns.keys import MemoryId

LEAST_SCORE = 0.1
"""The score by the rules below which the model is not asked about a pair."""

MOST_PAIRS = 500
"""How many pairs the model is asked about unless the caller says otherwise."""

MAX_CHARACTERS = 8_000
"""The length of a text above which its pairs are not sent: a model may not take it, and half a text may mislead."""

CONCURRENCY = 4
"""How many requests are under way at a time."""

WEIGHT = 2.0
"""How much the log-odds of Yes against No count, where those of the rules count as one."""

YES, NO = "Yes", "No"

INSTRUCTION = (
    "You compare two notes that one person wrote at different times. Say whether the newer note makes the older one "
    "unnecessary: because it states the same fact again, in other words or with more detail, or because it says that "
    "the fact has changed. Notes about two different things, events, days, or measurements are both needed, even if "
    "they are about the same topic. Answer Yes if the newer note replaces or repeats the older one, and No if both are "
    "needed."
)

_LEAST_MASS = 0.5  # of Yes and No together; with less the answer is another one
_FLOOR = 0.005  # added to the probability of each, so that no answer is surer than 200 to 1
_ENOUGH = 24  # answers that tell how far the model leans to one side
_REFUSALS = 4  # in a row, after which the model is asked no more
_CONFIRM_SECONDS = 2.0  # for which a connection to the model may be idle while the database is asked
_ATTEMPTS = 3
_BACKOFF = Backoff(first=2.0, longest=5.0, jitter=0.5)
_LONGEST_WAIT = 30.0  # seconds before a request is repeated, however long a server would have it wait

Ids = tuple[MemoryId, MemoryId]
"""The ids of the older and of the newer memory of a pair."""

Lookup = Callable[[Sequence[Pair]], Awaitable[AbstractSet[Ids]]]
"""Returns which of the pairs are still what was read: neither memory sensitive, deleted, superseded or edited."""


class JudgingModel(Protocol):
    """A language model that says how likely its answers are, such as `ChatClient`."""

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, *, before_sending: BeforeSending
    ) -> Mapping[str, float]:
        """Return the likeliest first tokens of the answer, and how likely each is (0 to 1).

        `before_sending` is awaited just before the text is sent, and what it raises is raised: the text is not sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class Judging:
    """What is proposed, best first, and how the model took part in it.

    `judged` counts the pairs whose score is the model's, too. The rules alone scored the others: `unusable` are those
    whose answer was neither Yes nor No, or that the model's server refused; about those of `not_judged` the model was
    not asked. `left_out` counts the pairs that are not proposed because a memory has become sensitive, deleted or
    superseded, or was edited.
    """

    judgements: list[Judgement]
    judged: int
    unusable: int
    not_judged: int
    left_out: int


async def judge_by_model(
    model: JudgingModel,
    pairs: Sequence[Pair],
    scores: Sequence[float],
    frequencies: Frequencies,
    *,
    threshold: float,
    lookup: Lookup,
    most: int = MOST_PAIRS,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Judging:
    """Return what is proposed for the pairs if the model is asked about the `most` best ones of at least `LEAST_SCORE`.

    `scores` are those of the pairs by the rules; `frequencies` and `threshold` are as in `choose`. `progress` is called
    with the numbers of pairs that are done and that are to be asked about. A model that does not answer is asked again,
    and so is a database that takes longer than two seconds to look a pair up; each of them three times at most.

    Raises:
        DatabaseUnreachable: the database took too long to look a pair up, or the connection to it was lost.
        EmbedderUnauthorized: the API key is refused.
        EmbedderRejected: the requests are refused, several in a row or all of them.
        EmbedderUnavailable: the model cannot be reached.
        EmbedderBroken: the answers do not say how likely they are.
    """
    by_rules = {pair.ids: score for pair, score in zip(pairs, scores, strict=True)}
    likely = [pair for pair in pairs if by_rules[pair.ids] >= LEAST_SCORE]
    likely.sort(key=lambda pair: (-by_rules[pair.ids], pair.newer.id, pair.older.id))
    short = [pair for pair in likely if max(len(pair.older.content), len(pair.newer.content)) <= MAX_CHARACTERS]
    questions = _Questions(model, short[:most], lookup, progress)
    await questions.ask()
    combined = combine(by_rules, questions.answers)
    left = [pair for pair in pairs if pair.ids not in questions.gone]
    chosen = choose(left, [(by_rules | combined)[pair.ids] for pair in left], frequencies, threshold=threshold)
    current = await lookup([one.pair for one in chosen])
    left_out = questions.gone | {one.pair.ids for one in chosen} - current
    judged, unusable = combined.keys() - left_out, questions.unusable - left_out
    return Judging(
        [
            replace(one, decided_by=Decider.MODEL) if one.pair.ids in combined else one
            for one in chosen
            if one.pair.ids in current
        ],
        judged=len(judged),
        unusable=len(unusable),
        not_judged=len({pair.ids for pair in likely} - judged - unusable - left_out),
        left_out=len(left_out),
    )


def combine(by_rules: Mapping[Ids, float], answers: Mapping[Ids, float]) -> dict[Ids, float]:
    """Return the scores (0 to 1) of the pairs with an answer, by the rules' scores and the answers' log-odds.

    The mean of all answers is taken away from each. Answers that are missing until there are `_ENOUGH` count as even.
    """
    leaning = sum(answers.values()) / max(len(answers), _ENOUGH)
    return {ids: _logistic(_log_odds(by_rules[ids]) + answer - leaning) for ids, answer in answers.items()}


def _log_odds(score: float) -> float:
    bounded = min(max(score, 1e-9), 1 - 1e-9)
    return math.log(bounded / (1 - bounded))


def _logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def log_odds_of_yes(answer: Mapping[str, float]) -> float | None:
    """Return by how much an answer supports that a pair is a restatement, or None if it is neither Yes nor No."""
    yes, no = (sum(share for token, share in answer.items() if token.strip() == word) for word in (YES, NO))
    return WEIGHT * math.log((yes + _FLOOR) / (no + _FLOOR)) if yes + no >= _LEAST_MASS else None


def question_about(pair: Pair) -> str:
    """Return what the model is shown of a pair: the dates and the texts of both memories."""
    days = [one.created_at.date().isoformat() for one in (pair.older, pair.newer)]
    return _question(days[0], pair.older.content, days[1], pair.newer.content)


def _question(older_day: str, older: str, newer_day: str, newer: str) -> str:
    return f"OLDER NOTE ({older_day}): {older}\n\nNEWER NOTE ({newer_day}): {newer}"


def examples() -> list[tuple[str, str]]:
    """Return sixteen questions about invented notes, which belong to nobody, with their answers.

    With another choice of examples the same model judges much better or worse.
    """
    text = files(__package__).joinpath("judging_examples.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    return [(_question(one["older_day"], one["older"], one["newer_day"], one["newer"]), one["answer"]) for one in found]


class _ChangedError(Exception):
    """A memory of a pair has changed since it was read, or has become sensitive."""


class _Questions:
    """Asks about pairs, some at a time, and keeps the log-odds of each answer."""

    def __init__(
        self, model: JudgingModel, pairs: Sequence[Pair], lookup: Lookup, progress: Callable[[int, int], None]
    ) -> None:
        self.answers: dict[Ids, float] = {}
        self.unusable: set[Ids] = set()
        self.gone: set[Ids] = set()
        self._model = model
        self._examples = examples()
        self._waiting = iter(pairs)
        self._total = len(pairs)
        self._lookup = lookup
        self._progress = progress
        self._refusals = 0  # since the last answer

    async def ask(self) -> None:
        """Ask about all pairs in their order.

        Raises:
            MemoryIndexError: the model does not answer, and this is why; or a memory could not be looked up.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(CONCURRENCY):
                    group.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None

    async def _work(self) -> None:
        for pair in self._waiting:
            try:
                ask = partial(self._ask_about, pair)
                await retry(ask, on=_delay, give_up_after=None, attempts=_ATTEMPTS, backoff=_BACKOFF)
            except (EmbedderRejected, EmbedderBroken):
                self.unusable.add(pair.ids)
                self._refusals += 1
                if self._refusals >= min(_REFUSALS, self._total):
                    raise
            self._progress(len(self.answers) + len(self.unusable) + len(self.gone), self._total)

    async def _ask_about(self, pair: Pair) -> None:
        """Ask the model about a pair, unless a memory of it has changed since it was read, or has become sensitive."""

        async def require_unchanged() -> None:
            try:
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    unchanged = await self._lookup([pair])
            except TimeoutError:
                raise _too_slow() from None
            if not unchanged:
                raise _ChangedError

        try:
            tokens = await self._model.first_token(
                INSTRUCTION, self._examples, question_about(pair), before_sending=require_unchanged
            )
        except _ChangedError:
            self.gone.add(pair.ids)
            return
        answer = log_odds_of_yes(tokens)
        self._refusals = 0
        if answer is None:
            self.unusable.add(pair.ids)
        else:
            self.answers[pair.ids] = answer


def _too_slow() -> DatabaseUnreachable:
    return DatabaseUnreachable(
        f"The database took longer than {_CONFIRM_SECONDS:.0f} s to say whether two memories may still be sent to the "
        "language model, so they were not sent.",
        "Look in pg_stat_activity for what its statements wait for, and start it again.",
    )


def _delay(error: BaseException) -> bool | float:
    if isinstance(error, DatabaseUnreachable):
        return True
    if not isinstance(error, EmbedderUnavailable):
        return False
    return True if error.retry_after is None else min(error.retry_after, _LONGEST_WAIT)
