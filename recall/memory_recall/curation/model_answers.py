"""What a language model answers about one pair of memories, and whether it is fit to be asked.

It is shown the dates and the texts of both, after an instruction and examples that are always the same. Of its answer
the first token alone counts, and of that only how likely each token was.

Before any memory is sent, the model has to tell other examples apart whose answers are known. One that cannot, because
it is too small or answers in another way, would only add noise. A model whose tokens' weights are known is recognised
by these answers; of any other it counts how much likelier Yes is than No.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Protocol, TypeVar

from memory_recall.curation.features import Memory, Pair
from memory_recall.curation.judging_examples import INSTRUCTION, NO, SHOWN, TRIAL, YES, Example, Note, question
from memory_recall.curation.known_models import KnownModel
from memory_recall.errors import (
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnavailable,
    Interrupted,
    JudgeUnfit,
    first_of,
)
from memory_recall.retrying import Backoff, retry

CONCURRENCY = 4
"""How many requests are under way at a time."""

MANY_TOKENS = 300
"""How many first tokens a server is asked for in the trial, and afterwards if it serves a known model."""

FEW_TOKENS = 20
"""How many it is asked for otherwise; OpenAI's interface gives no more."""

WEIGHT = 2.0
"""How much the log-odds of Yes against No count, where those of the rules count as one (ADR 34)."""

_FIT = 0.8  # share of the trial's pairs of a restatement and another note that the model has to put in order
_LEAST_MASS = 0.5  # of Yes and No together; with less the answer is another one
_FLOOR = 0.005  # added to the probability of each, so that no answer is surer than 200 to 1
_ATTEMPTS = 3
_BACKOFF = Backoff(first=2.0, longest=5.0, jitter=0.5)
_LONGEST_WAIT = 30.0  # seconds before a request is repeated, however long a server would have it wait

T = TypeVar("T")
Answer = Mapping[str, float]
"""The likeliest first tokens of an answer, and how likely each was (0 to 1)."""


class JudgingModel(Protocol):
    """A language model that says how likely its answers are, such as `ChatClient`."""

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, /, *, most: int
    ) -> Answer:
        """Return the `most` likeliest first tokens of the answer, and how likely each is (0 to 1)."""
        ...


@dataclass(frozen=True, slots=True)
class ApprovedModel:
    """A language model that has passed the trial, the number of tokens to ask it for, and how to read its answers.

    `recognised` is the known model that it is, or None. `usual` is the mean evidence (see `evidence`) of its answers,
    estimated before any pair was asked about.
    """

    model: JudgingModel
    most: int
    recognised: KnownModel | None
    usual: float

    async def answer_to(self, asked: str) -> float | None:
        """Ask a question, and return the evidence of the answer (see `evidence`)."""
        return evidence(await _first_token(self.model, asked, self.most), self.recognised)


def evidence(answer: Answer, known: KnownModel | None) -> float | None:
    """Return the log-odds by which an answer supports that a pair is a restatement, or None if it is not Yes or No.

    They include a constant, the model's leaning towards one answer, which the caller has to subtract.
    """
    yes, no = (sum(share for token, share in answer.items() if token.strip() == word) for word in (YES, NO))
    if yes + no < _LEAST_MASS:
        return None
    return WEIGHT * math.log((yes + _FLOOR) / (no + _FLOOR)) if known is None else known.evidence(answer)


def question_about(pair: Pair) -> str:
    """Return what the model is shown of a pair: the dates and the texts of both memories."""
    return question(_shown(pair.older), _shown(pair.newer))


def _shown(memory: Memory) -> Note:
    return Note(memory.created_at.date().isoformat(), memory.content)


async def _first_token(model: JudgingModel, asked: str, most: int) -> Answer:
    return await model.first_token(INSTRUCTION, [one.turn for one in SHOWN], asked, most=most)


async def pass_trial(model: JudgingModel, known: Sequence[KnownModel], stop: asyncio.Event) -> ApprovedModel:
    """Ask the model about the examples of the trial, and return how its answers are to be read if it passes.

    If many tokens cannot be had from its server, all examples are asked about again, for few tokens.

    Raises:
        JudgeUnfit: it does not tell restatements from other notes there, or answers neither Yes nor No.
        Interrupted: `stop` was set.
        MemoryIndexError: it does not answer.
    """
    try:
        answers = await _answers_to_trial(model, MANY_TOKENS, stop)
    except (EmbedderRejected, EmbedderBroken):  # the server refuses it, or its answer is too long
        answers = await _answers_to_trial(model, FEW_TOKENS, stop)
        known = ()
    recognised = next((one for one in known if one.is_model_of([answer for _, answer in answers])), None)
    read = [(one.restates, evidence(answer, recognised)) for one, answer in answers]
    usable = [(restates, worth) for restates, worth in read if worth is not None]
    if len(usable) < len(TRIAL):
        raise _unfit(f"answers {len(TRIAL) - len(usable)} of {len(TRIAL)} with something else than {YES} or {NO}")
    restated, others = ([worth for restates, worth in usable if restates is kind] for kind in (True, False))
    in_order = sum(one > other for one in restated for other in others) / (len(restated) * len(others))
    if in_order < _FIT:
        raise _unfit(f"puts {in_order:.0%} of them in order, of which {_FIT:.0%} are wanted")
    if recognised is None:
        return ApprovedModel(model, FEW_TOKENS, None, fmean(worth for _, worth in usable))
    return ApprovedModel(model, MANY_TOKENS, recognised, recognised.mean)


async def _answers_to_trial(model: JudgingModel, most: int, stop: asyncio.Event) -> list[tuple[Example, Answer]]:
    waiting = iter(TRIAL)
    answers: list[tuple[Example, Answer]] = []

    async def work() -> None:
        for one in waiting:
            asked = question(one.older, one.newer)
            answers.append((one, await patiently(partial(_first_token, model, asked, most))))

    await run_together(work, stop)
    if stop.is_set():
        raise Interrupted("The command was interrupted before the model was asked about a memory.", "Run it again.")
    return answers


def _unfit(why: str) -> JudgeUnfit:
    return JudgeUnfit(
        f"The language model is not fit to judge: of pairs of notes with known answers it {why}. No memory was sent.",
        "Use a larger model, or one that answers without reasoning first; or leave out --judge.",
    )


async def run_together(work: Callable[[], Coroutine[None, None, None]], stop: asyncio.Event) -> None:
    """Run `CONCURRENCY` calls of `work` side by side until all have ended, and cancel them when `stop` is set.

    Raises:
        MemoryIndexError: the first error of any of them, after which the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work()) for _ in range(CONCURRENCY)]
            watching = group.create_task(_cut_off(workers, stop))
            await asyncio.wait(workers)
            watching.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None


async def _cut_off(workers: Sequence[asyncio.Task[None]], stop: asyncio.Event) -> None:
    await stop.wait()
    for worker in workers:
        worker.cancel()


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns; where the model cannot be reached, it is called twice more.

    The delay is the one that the model's server names, but half a minute at most.
    """
    return await retry(work, on=_delay, give_up_after=None, attempts=_ATTEMPTS, backoff=_BACKOFF)


def _delay(error: BaseException) -> bool | float:
    if not isinstance(error, EmbedderUnavailable):
        return False
    return True if error.retry_after is None else min(error.retry_after, _LONGEST_WAIT)
