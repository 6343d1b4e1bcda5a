"""The gate of a model swap: the next model must not answer the user's labelled questions worse than tolerated.

Both models' columns are searched with the statement that serves recalls, and recall@10 is compared question by
question. The gate is a non-inferiority test: the next model passes only if the questions show, at a one-sided
confidence of 95 %, that hybrid recall, which is what users get, drops by no more than the tolerance. It is refused if
they show that hybrid recall or the dense leg alone drops by more. Otherwise the gate is undecided, and says how many
questions are missing. The dense leg is measured by itself because hybrid recall alone would let any model pass where
the lexical leg answers the questions, since they share words with their answers.

The next model is also refused if nothing can be measured, for instance because the active model answers none of the
questions. An outage of the database or of an embedder says nothing about the model, and is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from memory_recall.errors import DatabaseUnreachable, EmbedderUnavailable, MemoryIndexError
from memory_recall.evaluation.evaluate import BatchEmbedder, Question, embed_questions, evaluate
from memory_recall.evaluation.significance import bound_drop, questions_needed
from memory_recall.postgres.connection import DsnSource, create_pool
from memory_recall.retrying import Retrying
from memory_recall.schema.table import ACTIVE, STANDBY, VectorColumn
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.query import EmbeddedQuery, Mode
from memory_recall.swap.machine import GateOutcome

MEASURE = "recall@10"
_MODES: tuple[Mode, ...] = ("hybrid", "dense")
_TIME_BUDGET = 60.0  # seconds of one recall, for which nobody waits here
_DUTY_CYCLE = 0.5  # of the time, so that recalls beside the measurement stay fast
_MOST_QUESTIONS = 100_000  # nobody labels as many, so the message does not ask for them


@dataclass(frozen=True, slots=True)
class Scores:
    """The recall@10 (0 to 1) of hybrid recall and of the dense leg alone, for one question or as a mean."""

    hybrid: float
    dense: float


@dataclass(frozen=True, slots=True)
class Drop:
    """The drop of recall@10 from the active model to the next one, and its one-sided 95 % bounds; all from -1 to 1.

    `deviation` is the standard deviation of a question's drop. `equal` says whether both models answered every question
    equally well.
    """

    mean: float
    low: float
    high: float
    deviation: float
    equal: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the next model may become active, the numbers, and a sentence that states them.

    `missing` is the estimated number of further questions that an undecided gate needs, or None if it is not undecided
    or the drop is too close to the tolerance for any reasonable number.
    """

    outcome: GateOutcome
    reason: str
    message: str
    queries: int
    max_drop: float
    active: Scores | None = None
    next: Scores | None = None
    hybrid_drop: Drop | None = None
    dense_drop: Drop | None = None
    missing: int | None = None

    def as_record(self) -> Mapping[str, Any]:
        """Return the verdict as a dictionary, to be stored and printed."""
        return asdict(self)


def judge(active: Sequence[Scores], following: Sequence[Scores], *, max_drop: float) -> Verdict:
    """Compare both models' scores of the same questions in the same order; there is at least one question.

    The next model is refused if the lower bound of the drop of hybrid recall or of the dense leg is above `max_drop` (0
    to 1). It passes if the upper bound of the drop of hybrid recall is at most `max_drop`, or if it answers every
    question as well as the active model in hybrid recall, however few questions there are. Otherwise the gate is
    undecided.
    """
    before, after = _mean(active), _mean(following)
    hybrid = _drop([one.hybrid for one in active], [one.hybrid for one in following])
    dense = _drop([one.dense for one in active], [one.dense for one in following])
    numbers = (
        f"{MEASURE} over {len(active)} questions: active {before.hybrid:.3f}, next {after.hybrid:.3f} "
        f"(dense leg alone {before.dense:.3f} and {after.dense:.3f})"
    )

    def verdict(outcome: GateOutcome, reason: str, message: str, missing: int | None = None) -> Verdict:
        text = f"{numbers}. {message}"
        return Verdict(outcome, reason, text, len(active), max_drop, before, after, hybrid, dense, missing)

    if before.hybrid <= 0 or before.dense <= 0:
        return verdict(
            GateOutcome.REFUSED,
            "ActiveNotMeasurable",
            "The active model answers none of the questions, so they measure nothing: check that relevant_ids are ids "
            "of this table.",
        )
    for name, drop in (("hybrid recall", hybrid), ("the dense leg", dense)):
        if drop.low > max_drop:
            return verdict(
                GateOutcome.REFUSED,
                "RecallDropped",
                f"The drop of {name} is {drop.mean:.3f}, at least {drop.low:.3f} with 95 % confidence, which is over "
                f"the tolerated {max_drop:.3f}.",
            )
    if hybrid.equal:
        return verdict(GateOutcome.PASSED, "Passed", "Hybrid recall answers every question as well as before.")
    bounded = f"The drop of hybrid recall is {hybrid.mean:.3f}, at most {hybrid.high:.3f} with 95 % confidence"
    if hybrid.high <= max_drop:
        return verdict(GateOutcome.PASSED, "Passed", f"{bounded}, which is within the tolerated {max_drop:.3f}.")
    missing = _further_questions(hybrid, len(active), max_drop)
    wanted = (
        f"about {missing} more labelled questions would decide"
        if missing is not None
        else "the drop is so close to that limit that more questions would not decide"
    )
    message = f"{bounded} and at least {hybrid.low:.3f}; tolerated are {max_drop:.3f}, so {wanted}."
    return verdict(GateOutcome.UNDECIDED, "Undecided", message, missing)


def _mean(scores: Sequence[Scores]) -> Scores:
    count = len(scores)
    return Scores(sum(one.hybrid for one in scores) / count, sum(one.dense for one in scores) / count)


def _drop(active: Sequence[float], following: Sequence[float]) -> Drop:
    drops = [before - after for before, after in zip(active, following, strict=True)]
    bounds = bound_drop(drops)
    return Drop(
        mean=float(bounds.mean),
        low=float(bounds.low),
        high=float(bounds.high),
        deviation=float(bounds.deviation),
        equal=not any(drops),
    )


def _further_questions(drop: Drop, queries: int, max_drop: float) -> int | None:
    """Estimate how many questions, beside the `queries` there are, would decide whether the drop is tolerated.

    None if the drop is so close to `max_drop` (0 to 1) that no practical number would.
    """
    needed = questions_needed(drop.deviation, abs(max_drop - drop.mean))
    return max(1, int(needed) - queries) if needed <= _MOST_QUESTIONS else None


def not_measurable(why: str, *, queries: int, max_drop: float) -> Verdict:
    """Return the refusal of a next model that could not be measured, for the reason `why`."""
    return Verdict(
        outcome=GateOutcome.REFUSED,
        reason="NotMeasurable",
        message=f"The questions could not be measured: {why}",
        queries=queries,
        max_drop=max_drop,
    )


async def measure(
    source: DsnSource,
    table: str,
    questions: Sequence[Question],
    *,
    active: BatchEmbedder,
    following: BatchEmbedder,
    max_drop: float,
    retrying: Retrying,
) -> Verdict:
    """Measure both models on the questions and return the verdict. A failed measurement refuses the next model.

    `retrying` repeats the embedding of the questions while an embedder is away.

    Raises:
        EmbedderUnavailable: an embedder was away for longer than `retrying` waits.
        DatabaseUnreachable: the connection to the database was refused or lost.
    """
    try:
        of_active = await retrying(partial(embed_questions, questions, active))
        of_next = await retrying(partial(embed_questions, questions, following))
        before = await _scores(source, table, questions, of_active, ACTIVE)
        after = await _scores(source, table, questions, of_next, STANDBY)
    except (EmbedderUnavailable, DatabaseUnreachable):
        raise
    except MemoryIndexError as error:
        return not_measurable(str(error), queries=len(questions), max_drop=max_drop)
    return judge(before, after, max_drop=max_drop)


async def _scores(
    source: DsnSource,
    table: str,
    questions: Sequence[Question],
    vectors: Mapping[str, EmbeddedQuery],
    column: VectorColumn,
) -> list[Scores]:
    """Return each question's scores, in the order of the questions."""
    pool = await create_pool(source, max_size=1, application_name="memory-swap-gate")
    recall = HybridRecall(pool, None, RecallOptions(table=table, column=column, time_budget=_TIME_BUDGET))
    try:
        outcomes = await evaluate(recall, questions, _MODES, vectors, concurrency=1, share=_DUTY_CYCLE)
    finally:
        await recall.close()
        await pool.close()
    found = {(one.question.query_id, one.mode): one.scores.recall_10 for one in outcomes}
    return [Scores(found[one.query_id, "hybrid"], found[one.query_id, "dense"]) for one in questions]
