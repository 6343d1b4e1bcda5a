"""Ranks the questions of a labelled set with the graph leg in every setting, and scores the rankings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from memory_bench.graph.concept_graph import ConceptGraph
from memory_bench.graph.settings import Leg, Question, Setting, Weighting, first_family, second_family
from memory_bench.studies.gains import SettingScores
from memory_bench.studies.questions import MEASURES, Asked, LabelledSet, Numbers, Scope, scopes
from memory_recall.evaluation.measures import DEPTH
from memory_recall.graph.concepts import Source, concepts_of

LEG_DEPTH = 50
_FIRST = 1_000.0  # added to the scores of memories that keep their places; no fused score is near it
_LEAST = 1e-12  # in place of a divisor of zero
_NONE_MERGED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GraphScores(SettingScores[Setting]):
    """The scores of one set: `plain` without the graph leg, and `scores` with it in each of `settings`.

    `beyond` has the shape (settings, questions) and counts the relevant memories that the graph leg has among its first
    fifty and neither other leg has. `missing` counts, for each question, the relevant memories that neither other leg
    has.
    """

    beyond: NDArray[np.int16]
    missing: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GraphMeasurements:
    """The scores of one set in both families of settings, and those of its questions inside prompts in the second."""

    first: GraphScores
    second: GraphScores
    prompts: GraphScores


def measure_graph(labelled: LabelledSet, prompts: LabelledSet) -> GraphMeasurements:
    """Score a set, and the same questions inside prompts."""
    second = second_family()
    return GraphMeasurements(
        score_graph(labelled, first_family()), score_graph(labelled, second), score_graph(prompts, second)
    )


def score_graph(
    labelled: LabelledSet, settings: Sequence[Setting], same: Mapping[str, str] = _NONE_MERGED
) -> GraphScores:
    """Rank and score all questions of a set in each of the settings.

    `same` maps concepts to those that they count as; it is empty if equal normal forms alone are one concept.
    """
    queries = labelled.dataset.queries
    plain, missing = np.zeros((len(queries), len(MEASURES))), np.zeros(len(queries), dtype=np.int64)
    scores = np.zeros((len(settings), len(queries), len(MEASURES)), dtype=np.float32)
    beyond = np.zeros((len(settings), len(queries)), dtype=np.int16)
    for scope in scopes(labelled.dataset):
        asked = scope.questions(labelled)
        for number, one in zip(scope.numbers, asked, strict=True):
            plain[number] = one.scored(one.first(DEPTH)[None, :])[0]
            missing[number] = int((one.relevant & ~one.candidates).sum())
        for chosen, found in _by_leg(labelled, scope, asked, settings, same):
            for number, one, (places, reached) in zip(scope.numbers, asked, found, strict=True):
                scores[chosen, number] = one.scored(places)
                beyond[chosen, number] = reached
    strata = tuple(query.stratum for query in queries)
    return GraphScores(labelled.dataset.name, strata, tuple(settings), plain, scores, beyond, missing)


def rankings(labelled: LabelledSet, setting: Setting) -> list[list[int]]:
    """Return the first ten ids of every question with the graph leg in this setting."""
    ranked: list[list[int]] = [[] for _ in labelled.dataset.queries]
    for scope in scopes(labelled.dataset):
        for _, found in _by_leg(labelled, scope, scope.questions(labelled), [setting], _NONE_MERGED):
            for number, (places, _) in zip(scope.numbers, found, strict=True):
                ranked[number] = [labelled.dataset.memories[scope.places[place]].id for place in places[0]]
    return ranked


def _by_leg(
    labelled: LabelledSet,
    scope: Scope,
    asked: Sequence[Asked],
    settings: Sequence[Setting],
    same: Mapping[str, str],
) -> Iterator[tuple[list[int], Iterator[tuple[NDArray[np.intp], int]]]]:
    """Group the settings by leg; yield the indices of each group, and the rankings of all questions with them."""
    by_leg: dict[Leg, list[int]] = {}
    for place, (leg, _) in enumerate(settings):
        by_leg.setdefault(leg, []).append(place)
    graphs: dict[tuple[Source, float], ConceptGraph] = {}
    for leg, chosen in by_leg.items():
        key = (leg.source, leg.common)
        if key not in graphs:
            graphs[key] = ConceptGraph.build(_concepts(labelled, scope, leg.source, same), common=leg.common)
        yield chosen, _ranked(same, graphs[key], leg, [settings[place][1] for place in chosen], asked)


def _merged(concepts: frozenset[str], same: Mapping[str, str]) -> frozenset[str]:
    return frozenset(same.get(one, one) for one in concepts)


def _concepts(labelled: LabelledSet, scope: Scope, source: Source, same: Mapping[str, str]) -> list[frozenset[str]]:
    """Return the concepts of each memory of a scope."""
    found = (
        concepts_of(one.content, one.tags, one.expanded_keywords, source=source)
        for one in scope.memories(labelled.dataset)
    )
    return [_merged(one, same) for one in found]


def _ranked(
    same: Mapping[str, str], graph: ConceptGraph, leg: Leg, weightings: Sequence[Weighting], asked: Sequence[Asked]
) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Yield, for each question, the places of the first ten memories in every weighting, shape (weightings, 10).

    Beside them stands how many relevant memories the graph leg has that no other leg has.
    """
    starts = np.zeros((graph.links.shape[0], len(asked)))
    for column, one in enumerate(asked):
        first = one.first(leg.starts)
        starts[first, column] = np.maximum(one.fused[first], 0.0)
    reached = graph.reach(starts, leg.walk)
    for column, one in enumerate(asked):
        scores = _best(reached[:, column])
        pool = np.flatnonzero(one.candidates | (scores > 0))
        first = one.first(DEPTH)
        question = Question(
            doubt=float(np.clip(one.fused[first[-1]] / max(one.fused[first[0]], _LEAST), 0, 1)),
            agreement=graph.agreement(one.first(leg.starts).tolist()),
            named=graph.named(_merged(concepts_of(one.query.text, source=leg.source), same)),
            brief=one.brief,
        )
        weights = np.array([each.of(question) for each in weightings])
        totals = one.fused[pool] + weights[:, None] * (scores * one.prior)[pool]
        for row, each in enumerate(weightings):
            kept = first[: each.kept]
            totals[row, np.searchsorted(pool, kept)] += _FIRST * np.arange(len(kept), 0, -1)
        order = np.argsort(-totals, axis=1, kind="stable")[:, :DEPTH]
        yield pool[order], int((one.relevant & (scores > 0) & ~one.candidates).sum())


def _best(scores: Numbers) -> Numbers:
    """Return the best fifty scores, divided by the best one, and zero for all other memories."""
    nearest = np.argsort(-scores, kind="stable")[:LEG_DEPTH]
    kept = np.zeros_like(scores)
    kept[nearest] = scores[nearest] / max(scores[nearest[0]], _LEAST)
    return kept
