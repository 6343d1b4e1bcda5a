"""Measures what recall gains by boosting rows from the time that a question names.

Only sets can be measured whose rows begin with the time that they were written ("[1:56 pm on 8 May, 2023] ...", as in
LoCoMo). The lexical and the dense leg search this text too, so the measured gain is what the boost adds to them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.dataset import Memory, Query
from memory_bench.harness.scoring import Scorer
from memory_bench.recall.crossvalidation import MEASURES, score_rankings
from memory_bench.recall.evidence import Evidence
from memory_recall import Fusion, Period, find_period
from memory_recall.evaluation import measures
from memory_recall.evaluation.significance import Comparison, compare
from tests.support.reference_fusion import fuse

STAMP = re.compile(r"\[(\d{1,2}:\d\d [ap]m on \d{1,2} \w+, \d{4})\] ")
_QUESTIONS_AFTER = timedelta(days=7)  # after the last row of a conversation; only dates without a year depend on it

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimedQuestions:
    """The scores of the questions that name a time, without and with the boost, as arrays of shape (2, questions).

    `overall` compares recall without and with the boost over all questions of the set, by measure.
    """

    count: int
    plain: Scores
    boosted: Scores
    overall: Mapping[str, Comparison]


def written_times(memories: Sequence[Memory]) -> Mapping[int, datetime]:
    """Return the time with which each row's text begins, by row id; rows whose text names no time are left out."""
    found = ((memory.id, STAMP.match(memory.content)) for memory in memories)
    return {
        row: datetime.strptime(stamp[1], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC) for row, stamp in found if stamp
    }


def compare_boost(memories: Sequence[Memory], evidence: Sequence[Evidence], *, seed: int) -> TimedQuestions | None:
    """Compare the default fusion without and with the boost; return None if no row begins with a time."""
    written = written_times(memories)
    if not written:
        return None
    periods = named_periods([one.query for one in evidence], memories, written)
    named = np.array([period is not None for period in periods])
    scorer = Scorer([one.query for one in evidence])
    plain = score_rankings([_ranked(one, None, written) for one in evidence], scorer)
    boosted = score_rankings(
        [_ranked(one, period, written) for one, period in zip(evidence, periods, strict=True)], scorer
    )
    overall = {
        measure: compare(plain[row].tolist(), boosted[row].tolist(), seed=seed) for row, measure in enumerate(MEASURES)
    }
    return TimedQuestions(int(named.sum()), plain[:, named], boosted[:, named], overall)


def named_periods(
    queries: Sequence[Query], memories: Sequence[Memory], written: Mapping[int, datetime]
) -> list[Period | None]:
    """Return the period that each question names, asked one week after the last row of its scope was written.

    `written` has the times of rows by id; at least one row must have a time.
    """
    now = _latest(memories, written)
    last = max(now.values())  # a question without a scope comes after all rows
    return [find_period(query.text, now.get(query.scope, last)) for query in queries]


def _latest(memories: Sequence[Memory], written: Mapping[int, datetime]) -> Mapping[str | None, datetime]:
    """Return the time at which the questions of each scope are assumed to be asked.

    This is one week after the time of the scope's last row.
    """
    found: dict[str | None, datetime] = {}
    for memory in memories:
        if memory.id in written:
            moment = written[memory.id] + _QUESTIONS_AFTER
            found[memory.scope] = max(found.get(memory.scope, moment), moment)
    return found


def _ranked(evidence: Evidence, period: Period | None, written: Mapping[int, datetime]) -> list[int]:
    candidates = evidence.candidates
    if period is not None:
        candidates = tuple(
            replace(one, closeness=period.closeness(written[one.id])) if one.id in written else one
            for one in candidates
        )
    fused = fuse(candidates, Fusion(importance=False), max_lexical_score=evidence.max_lexical_score)
    return [one.id for one in fused[: measures.DEPTH]]
