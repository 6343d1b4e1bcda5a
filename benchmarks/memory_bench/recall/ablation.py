"""The design's ablation: which part of hybrid recall does the work.

A is all legs with the entity graph among them, B words and meaning, C meaning alone, D words alone; each with the
importance prior and without. In A the graph's rows are in the fused pool with a full weight, which they were not when
the design's own report found A equal to B.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memory_bench.recall.crossvalidation import MEASURES
from memory_bench.recall.entities import EntityLeg
from memory_bench.recall.evidence import Evidence
from memory_recall.evaluation import measures
from memory_recall.search.fusion import Candidate, Fusion, fuse

CONFIGURATIONS = {"A": "words, meaning, entities", "B": "words, meaning", "C": "meaning", "D": "words"}
ENTITY_SHARE = 0.2  # of a fused score that already adds up to one


def rankings(evidence: Sequence[Evidence], entities: EntityLeg, *, importance: bool) -> Mapping[str, list[list[int]]]:
    """The first ten ids of every question under every configuration."""
    fusion = Fusion(importance=importance)
    found: dict[str, list[list[int]]] = {name: [] for name in CONFIGURATIONS}
    for one in evidence:
        found["A"].append(_with_entities(one, entities, fusion))
        found["B"].append(_fused(one.candidates, one, fusion))
        found["C"].append(_fused([_only_dense(each) for each in one.candidates if each.dense_rank], one, fusion))
        found["D"].append(_fused([_only_lexical(each) for each in one.candidates if each.lexical_rank], one, fusion))
    return found


def _fused(candidates: Sequence[Candidate], evidence: Evidence, fusion: Fusion) -> list[int]:
    return [one.id for one in fuse(candidates, fusion, attainable=evidence.attainable)[: measures.DEPTH]]


def _only_dense(one: Candidate) -> Candidate:
    return replace(one, lexical_rank=None, lexical_score=None)


def _only_lexical(one: Candidate) -> Candidate:
    return replace(one, dense_rank=None, dense_score=None)


def _with_entities(evidence: Evidence, entities: EntityLeg, fusion: Fusion) -> list[int]:
    base = {one.id: one.score for one in fuse(evidence.candidates, fusion, attainable=evidence.attainable)}
    added = entities.scores(evidence.query)
    ids = dict.fromkeys([*base, *added])
    scores = {one: base.get(one, 0.0) + ENTITY_SHARE * added.get(one, 0.0) for one in ids}
    return sorted(scores, key=lambda one: (-scores[one], one))[: measures.DEPTH]


def measured(found: Sequence[Sequence[int]], evidence: Sequence[Evidence]) -> NDArray[np.float64]:
    """recall@10 and nDCG@10, question by question; rows are measures."""
    scores = [measures.score(one, each.query.relevant).named() for one, each in zip(found, evidence, strict=True)]
    return np.array([[one[measure] for one in scores] for measure in MEASURES])
