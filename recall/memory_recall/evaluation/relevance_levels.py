"""Chooses the least relevance for a store: what each level keeps of its owner's memories, and what it lets through.

What a level keeps is counted on the owner's labelled questions: of the relevant memories that a recall returns, those
that are relevant enough. What it lets through is counted on prompts to which no memory fits. The recommended level is
the highest that keeps at least `LEAST_KEPT`. That is the plain share: its lower bound, which is given as well, reaches
.95 only from 73 questions on, even if all of their memories are kept.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import NormalDist, fmean

from memory_recall.evaluation.judgements import judged_id
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.relevance import LEVELS, LeastRelevance, Level
from memory_recall.search.result import RecallResult

LEAST_KEPT = 0.95
PROMPT_LIMIT = 5  # memories that a hook asks for before a prompt
NUMBERS = (0.05, 0.1, 0.2, 0.3, 0.5)
_NOTHING_DEMANDED = LeastRelevance(0.0, 0.0)
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Rated:
    """A recalled memory: its relevance (0 to 1), whether words alone decided it, and whether it answers the query."""

    relevance: float
    by_words: bool
    relevant: bool = False

    def suffices(self, least: LeastRelevance) -> bool:
        """Return whether the memory is relevant enough."""
        return least.met_by(self.relevance, by_words=self.by_words)


@dataclass(frozen=True, slots=True)
class LevelShares:
    """What a level keeps and lets through.

    `kept` is the share of the relevant memories that still come back, and `kept_at_least` its lower bound: that of
    Wilson's 95 % interval for as many answers as there are questions, since the memories of one question are kept or
    lost together for the most part. `empty` is the share of the prompts without an answer that get no memory, and
    `in_vain` how many memories one of them gets on average.
    """

    level: Level | float
    kept: float
    kept_at_least: float
    empty: float
    in_vain: float


@dataclass(frozen=True, slots=True)
class TunedLevel:
    """The shares of each level, lowest first, and the recommended level.

    They are of the relevant memories of so many questions that recall any, and of so many prompts. The level is chosen
    by the same questions.
    """

    relevant_memories: int
    questions: int
    prompts: int
    levels: tuple[LevelShares, ...]
    recommended: Level | float


def rated(result: RecallResult, relevant: AbstractSet[MemoryId] = frozenset()) -> list[Rated]:
    """Return the memories of a result whose relevance is known. `relevant` are the ids of those that answer."""
    scale = result.relevance_scale
    return [
        Rated(memory.relevance, scale.by_words(memory.evidence.dense_score), judged_id(memory.id) in relevant)
        for memory in result.memories
        if scale is not None and memory.relevance is not None
    ]


def choose_level(questions: Sequence[Sequence[Rated]], prompts: Sequence[Sequence[Rated]]) -> TunedLevel | None:
    """Choose the highest level that keeps at least `LEAST_KEPT`, or None if no relevant memory was recalled.

    `questions` are the memories that each labelled question recalls, and `prompts` (one or more) those that each prompt
    without an answer recalls.
    """
    answered = [found for memories in questions if (found := [memory for memory in memories if memory.relevant])]
    if not answered:
        return None
    levels = tuple(_shares(level, least, answered, prompts) for level, least in _tried().items())
    recommended = next(shares.level for shares in reversed(levels) if shares.kept >= LEAST_KEPT)
    return TunedLevel(sum(map(len, answered)), len(answered), len(prompts), levels, recommended)


def _tried() -> Mapping[Level | float, LeastRelevance]:
    """Return the named levels and the numbers, lowest first."""
    tried: dict[Level | float, LeastRelevance] = {name: least or _NOTHING_DEMANDED for name, least in LEVELS.items()}
    tried |= {number: LeastRelevance(number, number) for number in NUMBERS}
    return dict(sorted(tried.items(), key=lambda one: (one[1].by_meaning, one[1].by_words)))


def _shares(
    level: Level | float, least: LeastRelevance, answered: Sequence[Sequence[Rated]], prompts: Sequence[Sequence[Rated]]
) -> LevelShares:
    kept = fmean(memory.suffices(least) for memories in answered for memory in memories)
    let_through = [sum(memory.suffices(least) for memory in memories) for memories in prompts]
    return LevelShares(
        level,
        kept,
        _lower_bound(kept, len(answered)),
        sum(count == 0 for count in let_through) / len(prompts),
        sum(let_through) / len(prompts),
    )


def _lower_bound(share: float, trials: int) -> float:
    """Return the lower end of Wilson's 95 % interval of a share of so many independent trials."""
    squared = _Z * _Z / trials
    spread = math.sqrt(squared * share * (1 - share) + squared * squared / 4)
    return max(0.0, (share + squared / 2 - spread) / (1 + squared))
