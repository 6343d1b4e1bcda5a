"""An ablation of hybrid recall: ranks the memories for each question with and without each leg.

There are four configurations, each with and without the importance prior. A has the lexical, the dense and an entity
leg; B has the lexical and the dense leg; C has the dense leg alone; D has the lexical leg alone. In A a fifth of a
row's entity score is added to its fused score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory_bench.recall.entities import EntityLeg
from memory_bench.recall.evidence import Evidence
from memory_bench.reference_fusion import Candidate, fuse
from memory_recall import Fusion
from memory_recall.evaluation import measures

CONFIGURATIONS = {"A": "lexical, dense, entities", "B": "lexical, dense", "C": "dense", "D": "lexical"}
ENTITY_SHARE = 0.2  # weight of the entity score beside a fused score of at most one


def rankings(evidence: Sequence[Evidence], entities: EntityLeg, fusion: Fusion) -> Mapping[str, list[list[int]]]:
    """Return, for every configuration, the first ten ids of every question."""
    found: dict[str, list[list[int]]] = {name: [] for name in CONFIGURATIONS}
    for one in evidence:
        found["A"].append(_with_entities(one, entities, fusion))
        found["B"].append(_fused(one.candidates, one, fusion))
        found["C"].append(_fused([_only_dense(each) for each in one.candidates if each.dense_rank], one, fusion))
        found["D"].append(_fused([_only_lexical(each) for each in one.candidates if each.lexical_rank], one, fusion))
    return found


def _fused(candidates: Sequence[Candidate], evidence: Evidence, fusion: Fusion) -> list[int]:
    return [one.id for one in fuse(candidates, fusion, max_lexical_score=evidence.max_lexical_score)[: measures.DEPTH]]


def _only_dense(one: Candidate) -> Candidate:
    return replace(one, lexical_rank=None, lexical_score=None)


def _only_lexical(one: Candidate) -> Candidate:
    return replace(one, dense_rank=None, dense_score=None)


def _with_entities(evidence: Evidence, entities: EntityLeg, fusion: Fusion) -> list[int]:
    fused = fuse(evidence.candidates, fusion, max_lexical_score=evidence.max_lexical_score)
    base = {one.id: one.score for one in fused}
    added = entities.scores(evidence.query)
    ids = dict.fromkeys([*base, *added])
    scores = {one: base.get(one, 0.0) + ENTITY_SHARE * added.get(one, 0.0) for one in ids}
    return sorted(scores, key=lambda one: (-scores[one], one))[: measures.DEPTH]
