"""What a language model answers about one pair of memories, and whether it is fit to be asked.

It is shown the dates and the texts of both, after an instruction and examples that are always the same. Of its answer
the first token alone counts: how much likelier Yes is than No.

Before any memory is sent, the model has to tell other examples apart whose answers are known. One that cannot, because
it is too small or answers in another way, would only add noise.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from memory_recall.curation.features import Memory, Pair
from memory_recall.curation.judging_examples import INSTRUCTION, NO, SHOWN, TRIAL, YES, Note, question
from memory_recall.errors import EmbedderUnavailable, Interrupted, JudgeUnfit, first_of
from memory_recall.retrying import Backoff, retry

CONCURRENCY = 4
"""How many requests are under way at a time."""

_FIT = 0.8  # share of the trial's pairs of a restatement and another note that the model has to put in order
_LEAST_MASS = 0.5  # of Yes and No together; with less the answer is another one
_FLOOR = 0.005  # added to the probability of each, so that no answer is surer than 200 to 1
_ATTEMPTS = 3
_BACKOFF = Backoff(first=2.0, longest=5.0, jitter=0.5)
_LONGEST_WAIT = 30.0  # seconds before a request is repeated, however long a server would have it wait

T = TypeVar("T")


class JudgingModel(Protocol):
    """A language model that says how likely its answers are, such as `ChatClient`."""

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, /
    ) -> Mapping[str, float]:
        """Return the likeliest first tokens of the answer, and how likely each is (0 to 1)."""
        ...


def sureness(tokens: Mapping[str, float]) -> float | None:
    """Return the log-odds of Yes against No by the first token of an answer, or None if it is neither.

    The value is from -5.3 to 5.3.
    """
    yes, no = (sum(share for token, share in tokens.items() if token.strip() == word) for word in (YES, NO))
    return math.log((yes + _FLOOR) / (no + _FLOOR)) if yes + no >= _LEAST_MASS else None


def question_about(pair: Pair) -> str:
    """Return what the model is shown of a pair: the dates and the texts of both memories."""
    return question(_shown(pair.older), _shown(pair.newer))


def _shown(memory: Memory) -> Note:
    return Note(memory.created_at.date().isoformat(), memory.content)


async def answer_to(model: JudgingModel, asked: str) -> float | None:
    """Return how sure the model is that the answer to a question is Yes (see `sureness`), or None."""
    return sureness(await model.first_token(INSTRUCTION, [one.turn for one in SHOWN], asked))


async def pass_trial(model: JudgingModel, stop: asyncio.Event) -> list[float]:
    """Return how sure the model is of each example of the trial, unless `stop` is set.

    Raises:
        JudgeUnfit: it does not tell restatements from other notes there, or answers neither Yes nor No.
        Interrupted: `stop` was set.
        MemoryIndexError: it does not answer.
    """
    waiting = iter(TRIAL)
    answered: list[tuple[bool, float]] = []

    async def work() -> None:
        for one in waiting:
            answer = await patiently(partial(answer_to, model, question(one.older, one.newer)))
            if answer is not None:
                answered.append((one.restates, answer))

    await run_together(work, stop)
    if stop.is_set():
        raise Interrupted("The command was interrupted before the model was asked about a memory.", "Run it again.")
    if len(answered) < len(TRIAL):
        raise _unfit(f"answers {len(TRIAL) - len(answered)} of {len(TRIAL)} with something else than {YES} or {NO}")
    restated, others = ([sure for restates, sure in answered if restates is kind] for kind in (True, False))
    in_order = sum(one > other for one in restated for other in others) / (len(restated) * len(others))
    if in_order < _FIT:
        raise _unfit(f"puts {in_order:.0%} of them in order, of which {_FIT:.0%} are wanted")
    return [sure for _, sure in answered]


def _unfit(why: str) -> JudgeUnfit:
    return JudgeUnfit(
        f"The language model is not fit to judge: of pairs of notes with known answers it {why}. No memory was sent.",
        "Use a larger model, or one that answers without reasoning first; or leave out --judge.",
    )


async def run_together(work: Callable[[], Coroutine[None, None, None]], stop: asyncio.Event) -> None:
    """Run `work` as often as requests may be under way, and return when all have; or cut them off when `stop` is set.

    Raises:
        MemoryIndexError: the first error of any of them, by which the others are cut off.
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
