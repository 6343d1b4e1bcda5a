"""Computes the MaxSim scores of the first memories of every question, and scores the rankings in all settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memory_bench.second_stage.maxsim import TokenStates, scores, unit
from memory_bench.second_stage.settings import DEPTHS, VARIANTS, MaxSimSetting
from memory_bench.studies.gains import SettingScores
from memory_bench.studies.questions import MEASURES, Asked, LabelledSet, Numbers, Scope, scopes
from memory_recall.evaluation.measures import DEPTH

MaxSimScores = SettingScores[MaxSimSetting]
Similar = NDArray[np.float32]
"""The MaxSim scores of each question's first memories, shape (questions, 30, variants); 0 where there are fewer."""


class Encoder(Protocol):
    """Anything that computes the states of a text's tokens, such as `TokenStateEncoder`."""

    def states(self, texts: Sequence[str]) -> Iterator[TokenStates]:
        """Yield the states of each text's tokens as the model pools them."""
        ...


@dataclass(frozen=True, slots=True)
class Compared:
    """The MaxSim scores of several sets of questions over the same memories, and the memories' numbers of tokens.

    `worst_pooled` is the least cosine between the mean of a memory's states and its vector from the embedder: 1 but for
    rounding, if the states are those that the embedder pools.
    """

    similar: tuple[Similar, ...]
    tokens: tuple[int, ...]
    worst_pooled: float


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Where a memory's score is stored: the number of the set, of its question, and of the question's memory."""

    questions: int
    number: int
    row: int


def compare_tokens(sets: Sequence[LabelledSet], encoder: Encoder) -> Compared:
    """Compute the MaxSim scores for the questions of each set; all sets have the same memories.

    Only memories that are among the first of a question are encoded, each once, and no states of memories are kept.
    """
    wanted: dict[int, list[_Wanted]] = {}
    for place, labelled in enumerate(sets):
        for one in _first_memories(labelled, place):
            wanted.setdefault(one[0], []).append(one[1])
    similar = tuple(np.zeros((len(one.dataset.queries), max(DEPTHS), len(VARIANTS)), dtype=np.float32) for one in sets)
    queries = [list(map(unit, encoder.states([query.text for query in one.dataset.queries]))) for one in sets]
    memories, vectors = sets[0].dataset.memories, sets[0].embedded.memories
    tokens, worst = [], 1.0
    found = encoder.states([memories[place].content for place in wanted])
    for (place, wants), states in zip(wanted.items(), found, strict=True):
        tokens.append(len(states))
        pooled = states.mean(axis=0)
        worst = min(worst, float(pooled @ vectors[place] / np.linalg.norm(pooled)))
        for want in wants:
            similar[want.questions][want.number, want.row] = scores(queries[want.questions][want.number], unit(states))
    return Compared(similar, tuple(tokens), worst)


def _first_memories(labelled: LabelledSet, questions: int) -> Iterator[tuple[int, _Wanted]]:
    for scope, number, asked in _questions(labelled):
        for row, place in enumerate(asked.first(max(DEPTHS))):
            yield scope.places[place], _Wanted(questions, number, row)


def _questions(labelled: LabelledSet) -> Iterator[tuple[Scope, int, Asked]]:
    for scope in scopes(labelled.dataset):
        for number, asked in zip(scope.numbers, scope.questions(labelled), strict=True):
            yield scope, number, asked


def score_maxsim(labelled: LabelledSet, similar: Similar, settings: Sequence[MaxSimSetting]) -> MaxSimScores:
    """Rank and score all questions of a set in each of the settings."""
    queries = labelled.dataset.queries
    plain = np.zeros((len(queries), len(MEASURES)))
    found = np.zeros((len(settings), len(queries), len(MEASURES)), dtype=np.float32)
    for _, number, asked in _questions(labelled):
        first = asked.first(max(DEPTHS))
        plain[number] = asked.scored(first[None, :DEPTH])[0]
        weighted = similar[number, : len(first)].astype(np.float64) * asked.prior[first][:, None]
        found[:, number] = asked.scored(
            np.stack([first[_order(one, asked.fused[first], weighted, asked.brief)] for one in settings])
        )
    return SettingScores(
        labelled.dataset.name, tuple(query.stratum for query in queries), tuple(settings), plain, found
    )


def _order(setting: MaxSimSetting, fused: Numbers, similar: Numbers, brief: float) -> "NDArray[np.intp]":
    """Return the first ten of the memories that are ordered anew."""
    totals = setting.totals(fused[: setting.depth], similar[: setting.depth, setting.variant], brief=brief)
    return np.argsort(-totals, kind="stable")[:DEPTH]
