"""The gate of a model swap: the next model must answer the user's labelled questions about as well as the active one.

Both models' columns are searched with the statement that serves recalls. The gate compares recall@10 of hybrid recall,
which is what users get, and of the dense leg alone. Hybrid recall alone would let any model pass, because the lexical
leg answers the questions that share words with their answers. The verdict holds the numbers and, if the next model is
refused, the reason. The next model is also refused if nothing can be measured, for instance because the active model
answers none of the questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memory_recall.errors import MemoryIndexError
from memory_recall.evaluation.evaluate import BatchEmbedder, Question, embed_questions, evaluate, summarise
from memory_recall.postgres.connection import DsnSource, create_pool
from memory_recall.schema.table import ACTIVE, STANDBY, VectorColumn
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.query import Mode

MEASURE = "recall@10"
_MODES: tuple[Mode, ...] = ("hybrid", "dense")
_TIME_BUDGET = 60.0  # seconds of one recall, for which nobody waits here
_DUTY_CYCLE = 0.5  # of the time, so that recalls beside the measurement stay fast


@dataclass(frozen=True, slots=True)
class Scores:
    """Mean recall@10 over the questions, 0 to 1: of hybrid recall, and of the dense leg alone."""

    hybrid: float
    dense: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the next model may become active, the numbers, and a sentence that states them."""

    passed: bool
    reason: str
    message: str
    queries: int
    max_drop: float
    active: Scores | None = None
    next: Scores | None = None

    def as_record(self) -> Mapping[str, Any]:
        """Return the verdict as a dictionary, to be stored and printed."""
        return asdict(self)


def judge(active: Scores, following: Scores, *, queries: int, max_drop: float) -> Verdict:
    """Compare both models' scores. A drop of recall@10 by more than `max_drop` (0 to 1) refuses the next model."""
    drop = max(active.hybrid - following.hybrid, active.dense - following.dense)
    numbers = (
        f"{MEASURE} over {queries} questions: active {active.hybrid:.3f}, next {following.hybrid:.3f} "
        f"(dense leg alone {active.dense:.3f} and {following.dense:.3f})"
    )

    def verdict(reason: str, message: str, *, passed: bool = False) -> Verdict:
        return Verdict(passed, reason, message, queries, max_drop, active, following)

    if active.hybrid <= 0 or active.dense <= 0:
        return verdict(
            "ActiveNotMeasurable",
            f"{numbers}. The active model answers none of the questions, so they measure nothing: check that "
            "relevant_ids are ids of this table.",
        )
    if drop > max_drop:
        return verdict("RecallDropped", f"{numbers}. The drop of {drop:.3f} is over the tolerated {max_drop:.3f}.")
    return verdict("Passed", f"{numbers}. The drop of {drop:.3f} is within the tolerated {max_drop:.3f}.", passed=True)


def not_measurable(why: str, *, queries: int, max_drop: float) -> Verdict:
    """Return the refusal of a next model that could not be measured, for the reason `why`."""
    return Verdict(
        passed=False,
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
) -> Verdict:
    """Measure both models on the questions and return the verdict. A failed measurement refuses the next model."""
    try:
        before = await _scores(source, table, questions, active, ACTIVE)
        after = await _scores(source, table, questions, following, STANDBY)
    except MemoryIndexError as error:
        return not_measurable(str(error), queries=len(questions), max_drop=max_drop)
    return judge(before, after, queries=len(questions), max_drop=max_drop)


async def _scores(
    source: DsnSource, table: str, questions: Sequence[Question], embedder: BatchEmbedder, column: VectorColumn
) -> Scores:
    vectors = await embed_questions(questions, embedder)
    pool = await create_pool(source, max_size=1, application_name="memory-swap-gate")
    recall = HybridRecall(pool, table=table, column=column, time_budget=_TIME_BUDGET)
    try:
        outcomes = await evaluate(recall, questions, _MODES, vectors, concurrency=1, share=_DUTY_CYCLE)
    finally:
        await recall.close()
        await pool.close()
    means = summarise(outcomes, _MODES)[MEASURE]
    return Scores(hybrid=means["hybrid"], dense=means["dense"])
