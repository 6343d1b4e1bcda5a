"""Ranks the questions of a labelled set with the graph leg in every setting, and scores the rankings.

There are millions of rankings, too many for `harness.scoring`, so that recall@10 and nDCG@10 are computed here with
arrays; a test compares them with `harness.scoring`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memory_bench.graph.concept_graph import ConceptGraph, Numbers
from memory_bench.graph.settings import Leg, Question, Setting, Weighting, first_family, second_family
from memory_bench.harness.dataset import Dataset, Query
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.recall.evidence import Evidence
from memory_recall import Fusion
from memory_recall.evaluation.judgements import RELEVANT_FROM
from memory_recall.evaluation.measures import DEPTH
from memory_recall.graph.concepts import Source, concepts_of
from memory_recall.search.fusion import IMPORTANCE_BASE, IMPORTANCE_SHARE

MEASURES = ("recall@10", "ndcg@10")
LEG_DEPTH = 50
_DISCOUNT = 1 / np.log2(np.arange(2, DEPTH + 2))
_FIRST = 1_000.0  # added to the scores of memories that keep their places; no fused score is near it
_LEAST = 1e-12  # in place of a divisor of zero


@dataclass(frozen=True, slots=True)
class GraphScores:
    """The scores of one set: `plain` without the graph leg, and `scores` with it in each of `settings`.

    The shapes are (questions, measures) and (settings, questions, measures). `beyond` has the shape (settings,
    questions) and counts the relevant memories that the graph leg has among its first fifty and neither other leg has.
    `missing` counts, for each question, the relevant memories that neither other leg has.
    """

    name: str
    strata: tuple[str, ...]
    settings: tuple[Setting, ...]
    plain: Numbers
    scores: NDArray[np.float32]
    beyond: NDArray[np.int16]
    missing: NDArray[np.int64]

    @property
    def gains(self) -> NDArray[np.float32]:
        """The scores with the graph leg minus those without it."""
        difference: NDArray[np.float32] = self.scores - self.plain.astype(np.float32)
        return difference


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with arrays over the memories of its scope: fused scores, priors, candidates, judgements."""

    query: Query
    fused: Numbers
    prior: Numbers
    candidates: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    grades: Numbers
    brief: float

    def first(self, count: int) -> NDArray[np.intp]:
        """Return the places of the first memories of the fused list."""
        order = np.argsort(-np.where(self.candidates, self.fused, -np.inf), kind="stable")[:count]
        return order[: int(self.candidates.sum())]

    def scored(self, ranked: NDArray[np.intp]) -> Numbers:
        """Return recall@10 and nDCG@10 of rankings of places, shape (rankings, 2)."""
        found = self.relevant[ranked].sum(axis=1) / len(self.query.relevant)
        ideal = np.sort(self.grades)[::-1][:DEPTH]
        gained = (self.grades[ranked] * _DISCOUNT[: ranked.shape[1]]).sum(axis=1) / (ideal @ _DISCOUNT[: len(ideal)])
        return np.stack([found, gained], axis=1)


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A labelled set with the candidates of both legs, its vectors, and the fusion that its questions are ranked with.

    `same` maps concepts to those that they count as; it is empty if equal normal forms alone are one concept.
    """

    dataset: Dataset
    evidence: Sequence[Evidence]
    embedded: EmbeddedSet
    fusion: Fusion
    same: Mapping[str, str] = field(default_factory=dict)


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


def score_graph(labelled: LabelledSet, settings: Sequence[Setting]) -> GraphScores:
    """Rank and score all questions of a set in each of the settings."""
    queries = labelled.dataset.queries
    plain, missing = np.zeros((len(queries), len(MEASURES))), np.zeros(len(queries), dtype=np.int64)
    scores = np.zeros((len(settings), len(queries), len(MEASURES)), dtype=np.float32)
    beyond = np.zeros((len(settings), len(queries)), dtype=np.int16)
    for scope in _scopes(labelled.dataset):
        asked = scope.questions(labelled)
        for number, one in zip(scope.numbers, asked, strict=True):
            plain[number] = one.scored(one.first(DEPTH)[None, :])[0]
            missing[number] = int((one.relevant & ~one.candidates).sum())
        for chosen, found in _by_leg(labelled, scope, asked, settings):
            for number, one, (places, reached) in zip(scope.numbers, asked, found, strict=True):
                scores[chosen, number] = one.scored(places)
                beyond[chosen, number] = reached
    strata = tuple(query.stratum for query in queries)
    return GraphScores(labelled.dataset.name, strata, tuple(settings), plain, scores, beyond, missing)


def rankings(labelled: LabelledSet, setting: Setting) -> list[list[int]]:
    """Return the first ten ids of every question with the graph leg in this setting."""
    ranked: list[list[int]] = [[] for _ in labelled.dataset.queries]
    for scope in _scopes(labelled.dataset):
        for _, found in _by_leg(labelled, scope, scope.questions(labelled), [setting]):
            for number, (places, _) in zip(scope.numbers, found, strict=True):
                ranked[number] = [labelled.dataset.memories[scope.places[place]].id for place in places[0]]
    return ranked


def _by_leg(
    labelled: LabelledSet, scope: "_Scope", asked: Sequence[_Asked], settings: Sequence[Setting]
) -> Iterator[tuple[list[int], Iterator[tuple[NDArray[np.intp], int]]]]:
    """Group the settings by leg; yield the indices of each group, and the rankings of all questions with them."""
    by_leg: dict[Leg, list[int]] = {}
    for place, (leg, _) in enumerate(settings):
        by_leg.setdefault(leg, []).append(place)
    graphs: dict[tuple[Source, float], ConceptGraph] = {}
    for leg, chosen in by_leg.items():
        key = (leg.source, leg.common)
        if key not in graphs:
            graphs[key] = ConceptGraph.build(scope.concepts(labelled, leg.source), common=leg.common)
        yield chosen, _ranked(labelled, graphs[key], leg, [settings[place][1] for place in chosen], asked)


def _merged(concepts: frozenset[str], same: Mapping[str, str]) -> frozenset[str]:
    return frozenset(same.get(one, one) for one in concepts)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The numbers of the questions that search one scope, and the places of its memories in the set, by id."""

    numbers: Sequence[int]
    places: Sequence[int]

    def concepts(self, labelled: LabelledSet, source: Source) -> list[frozenset[str]]:
        """Return the concepts of each memory."""
        memories = (labelled.dataset.memories[place] for place in self.places)
        found = (concepts_of(one.content, one.tags, one.expanded_keywords, source=source) for one in memories)
        return [_merged(one, labelled.same) for one in found]

    def questions(self, labelled: LabelledSet) -> list[_Asked]:
        """Return the questions with the arrays of the scope."""
        memories = [labelled.dataset.memories[place] for place in self.places]
        row = {one.id: place for place, one in enumerate(memories)}
        importance = np.array([one.importance for one in memories])
        prior = IMPORTANCE_BASE + IMPORTANCE_SHARE * importance if labelled.fusion.importance else importance * 0 + 1
        vectors = labelled.embedded.memories[list(self.places)].astype(np.float64)
        cosines = labelled.embedded.queries[list(self.numbers)].astype(np.float64) @ vectors.T
        asked = []
        for number, cosine in zip(self.numbers, cosines, strict=True):
            one = labelled.evidence[number]
            judged = one.query.grades or dict.fromkeys(one.query.relevant, RELEVANT_FROM)
            candidates = _filled(row, {each.id: 1 for each in one.candidates}) > 0
            fused = _convex(labelled.fusion, cosine, _filled(row, one.lexical_scores), candidates, one) * prior
            relevant = _filled(row, dict.fromkeys(one.query.relevant, 1)) > 0
            brief = min(1.0, (one.max_lexical_score or 1.0) / (one.whole_query_score or 1.0))
            asked.append(_Asked(one.query, fused, prior, candidates, relevant, _filled(row, judged), brief))
        return asked


def _filled(row: Mapping[int, int], values: Mapping[int, float]) -> Numbers:
    """Return the values by place; memories without a value have 0."""
    found = np.zeros(len(row))
    found[[row[one] for one in values]] = list(values.values())
    return found


def _scopes(dataset: Dataset) -> Iterator[_Scope]:
    by_id = sorted(range(len(dataset.memories)), key=lambda place: dataset.memories[place].id)
    for scope in dict.fromkeys(query.scope for query in dataset.queries):
        numbers = [number for number, query in enumerate(dataset.queries) if query.scope == scope]
        yield _Scope(numbers, [place for place in by_id if scope is None or dataset.memories[place].scope == scope])


def _convex(
    fusion: Fusion, cosine: Numbers, lexical: Numbers, candidates: NDArray[np.bool_], evidence: Evidence
) -> Numbers:
    """Return the fused scores of all memories; the candidates of the lexical and the dense leg set the scale.

    Of a candidate it is the score that `reference_fusion.fuse` gives it with the default method.
    """
    inside = cosine[candidates]
    floor = -1.0 if fusion.dense_floor is None else fusion.dense_floor
    close = (cosine - inside.min()) / (inside.max() - floor)
    matching = lexical / (evidence.max_lexical_score or 1.0)
    scored: Numbers = fusion.alpha * close + (1 - fusion.alpha) * matching * matching
    return scored


def _ranked(
    labelled: LabelledSet, graph: ConceptGraph, leg: Leg, weightings: Sequence[Weighting], asked: Sequence[_Asked]
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
            named=graph.named(_merged(concepts_of(one.query.text, source=leg.source), labelled.same)),
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
