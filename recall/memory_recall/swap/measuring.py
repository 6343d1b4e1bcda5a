"""Asks the labelled questions of both columns, through the very statement that serves recalls."""

from collections.abc import Sequence

from memory_recall.errors import MemoryIndexError
from memory_recall.evaluation.evaluate import BatchEmbedder, Question, embed_questions, evaluate, summarise
from memory_recall.postgres.connection import DsnSource, create_pool
from memory_recall.schema.table import ACTIVE, STANDBY, VectorColumn
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.query import Mode
from memory_recall.swap.gate import MEASURE, Scores, Verdict, judge, not_measurable

_MODES: tuple[Mode, ...] = ("hybrid", "dense")
_TIME_BUDGET = 60.0  # seconds of one recall, for which nobody waits here
_SHARE = 0.5  # of the time; the recalls beside it are waited for, the gate is not


async def measure(
    source: DsnSource,
    table: str,
    questions: Sequence[Question],
    *,
    active: BatchEmbedder,
    following: BatchEmbedder,
    max_drop: float,
) -> Verdict:
    """Both models' scores and the verdict; what cannot be measured is refused, not passed."""
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
        outcomes = await evaluate(recall, questions, _MODES, vectors, concurrency=1, share=_SHARE)
    finally:
        await recall.close()
        await pool.close()
    means = summarise(outcomes, _MODES)[MEASURE]
    return Scores(hybrid=means["hybrid"], dense=means["dense"])
