"""The second design's temporal part: what the time that a question names is worth.

Only rows whose text begins with its own time can say it ("[1:56 pm on 8 May, 2023] ...", as LoCoMo's do). They say it
to both legs as well, so the gain is what is left to gain after words and meaning have seen the date.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.dataset import Memory
from memory_bench.recall.ablation import measured
from memory_bench.recall.crossvalidation import MEASURES
from memory_bench.recall.evidence import Evidence
from memory_recall.evaluation import measures
from memory_recall.evaluation.significance import Comparison, compare
from memory_recall.search.dates import find_period
from memory_recall.search.fusion import Fusion, fuse
from memory_recall.search.period import Period

STAMP = re.compile(r"\[(\d{1,2}:\d\d [ap]m on \d{1,2} \w+, \d{4})\] ")
_ASKED_AFTER = timedelta(days=7)  # the last row of a conversation; only dates without a year depend on it

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimedQuestions:
    """The questions that name a time, without the boost and with it; rows are measures."""

    asked: int
    plain: Scores
    boosted: Scores
    overall: Mapping[str, Comparison]  # over all questions of the set


def stamps(memories: Sequence[Memory]) -> Mapping[int, datetime]:
    """When each row was written, by its own account."""
    found = ((memory.id, STAMP.match(memory.content)) for memory in memories)
    return {
        row: datetime.strptime(stamp[1], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC) for row, stamp in found if stamp
    }


def compare_boost(memories: Sequence[Memory], evidence: Sequence[Evidence], *, seed: int) -> TimedQuestions | None:
    """Compare the default fusion without and with the boost; None where no row says its time."""
    written = stamps(memories)
    if not written:
        return None
    now = _latest(memories, written)
    last = max(now.values())  # a question of no scope is asked after everything
    periods = [find_period(one.query.text, now.get(one.query.scope, last)) for one in evidence]
    named = np.array([period is not None for period in periods])
    plain = measured([_ranked(one, None, written) for one in evidence], evidence)
    boosted = measured([_ranked(one, period, written) for one, period in zip(evidence, periods, strict=True)], evidence)
    overall = {
        measure: compare(plain[row].tolist(), boosted[row].tolist(), seed=seed) for row, measure in enumerate(MEASURES)
    }
    return TimedQuestions(int(named.sum()), plain[:, named], boosted[:, named], overall)


def _latest(memories: Sequence[Memory], written: Mapping[int, datetime]) -> Mapping[str | None, datetime]:
    """By scope, a time shortly after its last row; questions are about what was."""
    found: dict[str | None, datetime] = {}
    for memory in memories:
        if memory.id in written:
            moment = written[memory.id] + _ASKED_AFTER
            found[memory.scope] = max(found.get(memory.scope, moment), moment)
    return found


def _ranked(evidence: Evidence, period: Period | None, written: Mapping[int, datetime]) -> list[int]:
    candidates = evidence.candidates
    if period is not None:
        candidates = tuple(
            replace(one, closeness=period.closeness(written[one.id])) if one.id in written else one
            for one in candidates
        )
    fused = fuse(candidates, Fusion(importance=False), attainable=evidence.attainable)
    return [one.id for one in fused[: measures.DEPTH]]
