"""MMR, maximal marginal relevance: a memory goes down if it is like one above it. With measures of how alike ten are.

J. Carbonell and J. Goldstein, The use of MMR, diversity-based reranking for reordering documents and producing
summaries, SIGIR 1998. Likeness is the cosine of vectors, from a floor on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory_bench.second_stage.settings import MmrSetting
from memory_bench.studies.gains import SettingScores
from memory_bench.studies.questions import MEASURES, Asked, LabelledSet, Numbers, Places, Scope, scopes
from memory_recall.evaluation.measures import DEPTH

_LEAST = 1e-12  # in place of a divisor of zero
Groups = Mapping[int, int]
"""The fact that a memory states, by the memory's id; a memory without an entry states one of its own."""


@dataclass(frozen=True, slots=True)
class DiversityScores(SettingScores[MmrSetting]):
    """The scores of one set, and how alike the ten memories of each question are, with and without each setting.

    The shapes of `plain_likeness` and `likeness` are (questions,) and (settings, questions).
    """

    plain_likeness: Numbers
    likeness: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FactScores:
    """How many of ten memories repeat a fact, and which share of the relevant facts they state, by question."""

    plain_repeats: Numbers
    repeats: NDArray[np.float32]
    plain_facts: Numbers
    facts: NDArray[np.float32]


def mmr(relevance: Numbers, cosines: Numbers, settings: Sequence[MmrSetting], count: int) -> Places:
    """Return the places of the first `count` memories in each setting, shape (settings, count).

    `relevance` is in descending order, at most one. At equal values the more relevant memory comes first.
    """
    count = min(count, len(relevance))
    trade, floor = (np.array([getattr(one, name) for one in settings]) for name in ("trade", "floor"))
    alike = np.maximum(0.0, (cosines - floor[:, None, None]) / (1 - floor[:, None, None]))
    rows = np.arange(len(settings))
    order = np.zeros((len(settings), count), dtype=np.intp)
    value = np.tile(relevance, (len(settings), 1)) * trade[:, None]
    above = np.zeros_like(value)
    value[:, 0] = -np.inf
    for rank in range(1, count):
        above = np.maximum(above, alike[rows, order[:, rank - 1]])
        order[:, rank] = np.argmax(value - (1 - trade[:, None]) * above, axis=1)
        value[rows, order[:, rank]] = -np.inf
    return order


def likeness(cosines: Numbers) -> float:
    """Return the mean, over all memories but the first, of the greatest cosine with one above; 0 for a single one."""
    if len(cosines) < 2:
        return 0.0
    return float(np.mean([cosines[row, :row].max() for row in range(1, len(cosines))]))


def repeats(memories: Sequence[int], groups: Groups) -> int:
    """Return how many of the memories state a fact that one above them states."""
    return len(memories) - len({groups.get(one, one) for one in memories})


def facts(memories: Sequence[int], relevant: Collection[int], groups: Groups) -> float:
    """Return the recall of facts: the share of the relevant memories' facts that the given memories state."""
    stated = {groups.get(one, one) for one in relevant}
    return len({groups.get(one, one) for one in memories if one in relevant}) / len(stated)


def score_mmr(labelled: LabelledSet, settings: Sequence[MmrSetting]) -> DiversityScores:
    """Rank and score all questions of a set in each of the settings."""
    queries = labelled.dataset.queries
    plain, plain_likeness = np.zeros((len(queries), len(MEASURES))), np.zeros(len(queries))
    found = np.zeros((len(settings), len(queries), len(MEASURES)), dtype=np.float32)
    alike = np.zeros((len(settings), len(queries)), dtype=np.float32)
    for scope in scopes(labelled.dataset):
        for number, asked in zip(scope.numbers, scope.questions(labelled), strict=True):
            pool, cosines, ranked = _ranked(labelled, scope, asked, settings)
            plain[number] = asked.scored(pool[None, :DEPTH])[0]
            plain_likeness[number] = likeness(cosines[:DEPTH, :DEPTH])
            found[:, number] = asked.scored(pool[ranked])
            alike[:, number] = [likeness(cosines[np.ix_(one, one)]) for one in ranked]
    strata = tuple(query.stratum for query in queries)
    return DiversityScores(labelled.dataset.name, strata, tuple(settings), plain, found, plain_likeness, alike)


def score_facts(labelled: LabelledSet, settings: Sequence[MmrSetting], groups: Groups) -> FactScores:
    """Count repeats and facts of all questions of a set in each of the settings."""
    memories, queries = labelled.dataset.memories, labelled.dataset.queries
    plain = np.zeros((2, len(queries)))
    found = np.zeros((2, len(settings), len(queries)), dtype=np.float32)
    for scope in scopes(labelled.dataset):
        for number, asked in zip(scope.numbers, scope.questions(labelled), strict=True):
            pool, _, ranked = _ranked(labelled, scope, asked, settings)
            ids = [memories[scope.places[place]].id for place in pool]
            tens = [ids[:DEPTH], *([ids[place] for place in one] for one in ranked)]
            relevant = asked.query.relevant
            counted = np.array([[repeats(ten, groups) for ten in tens], [facts(ten, relevant, groups) for ten in tens]])
            plain[:, number], found[:, :, number] = counted[:, 0], counted[:, 1:]
    return FactScores(plain[0], found[0], plain[1], found[1])


def _ranked(
    labelled: LabelledSet, scope: Scope, asked: Asked, settings: Sequence[MmrSetting]
) -> tuple[Places, Numbers, Places]:
    """Return the first memories of the fused list, their cosines, and the places in that list of each setting's ten."""
    depths = sorted({one.depth for one in settings})
    pool = asked.first(depths[-1])
    vectors = labelled.embedded.memories[[scope.places[place] for place in pool]].astype(np.float64)
    cosines = vectors @ vectors.T
    relevance = asked.fused[pool] / max(float(asked.fused[pool[0]]), _LEAST)
    ranked = np.zeros((len(settings), min(DEPTH, len(pool))), dtype=np.intp)
    for depth in depths:
        chosen = [place for place, one in enumerate(settings) if one.depth == depth]
        ranked[chosen] = mmr(relevance[:depth], cosines[:depth, :depth], [settings[place] for place in chosen], DEPTH)
    return pool, cosines, ranked
