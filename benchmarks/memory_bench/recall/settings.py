"""The fusion settings that the recall benchmark compares, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from memory_bench.recall.evidence import Evidence
from memory_recall import Fusion
from tests.support.reference_fusion import fuse

DEFAULT = "query scale 0.7"


@dataclass(frozen=True, slots=True)
class Setting:
    """One fusion setting.

    `exact_bonus` is added, as a share of the best score, to the score of rows that contain every word of the question.
    With `whole_query`, lexical scores are divided by `Evidence.whole_query_score` instead of by
    `Evidence.max_lexical_score`.
    """

    fusion: Fusion = field(default_factory=Fusion)
    exact_bonus: float = 0.0
    whole_query: bool = False

    def rank(self, evidence: Evidence, depth: int) -> list[int]:
        """Fuse the candidates of one question and return the first `depth` ids, best first."""
        scale = evidence.whole_query_score if self.whole_query else evidence.max_lexical_score
        fused = fuse(evidence.candidates, self.fusion, max_lexical_score=scale)
        if self.exact_bonus and fused:
            most = fused[0].score
            fused.sort(key=lambda one: (-one.score - self.exact_bonus * most * (one.id in evidence.complete), one.id))
        return [one.id for one in fused[:depth]]


def settings(*, importance: bool = False) -> Mapping[str, Setting]:
    """Return all compared fusion settings by name, including the default."""
    tried: dict[str, Setting] = {}
    for k in (1, 5, 10, 20, 60):
        tried[f"RRF k={k}"] = Setting(Fusion(method="rrf", k=k, importance=importance))
        for weight in (0.5, 2.0):
            fusion = Fusion(method="rrf", k=k, dense_weight=weight, importance=importance)
            tried[f"RRF k={k}, dense {weight:g}"] = Setting(fusion)
    for tenths in range(3, 10):
        alpha = tenths / 10
        tried[f"query scale {alpha}"] = Setting(Fusion(alpha=alpha, importance=importance))
        linear = Fusion(alpha=alpha, lexical_scale="linear", importance=importance)
        tried[f"linear {alpha}"] = Setting(linear)
        tried[f"whole query {alpha}"] = Setting(Fusion(alpha=alpha, importance=importance), whole_query=True)
        tried[f"linear, whole query {alpha}"] = Setting(linear, whole_query=True)
        fusion = Fusion(alpha=alpha, lexical_scale="list", importance=importance)
        tried[f"TM2C2 {alpha}"] = Setting(fusion)
        fusion = Fusion(alpha=alpha, lexical_scale="list", dense_floor=None, importance=importance)
        tried[f"min-max {alpha}"] = Setting(fusion)
    for floor in (-0.5, 0.0, 0.2, 0.4):
        tried[f"query scale 0.7, floor {floor:g}"] = Setting(Fusion(dense_floor=floor, importance=importance))
    for alpha in (0.6, 0.7, 0.8):
        for bonus in (0.05, 0.1, 0.2):
            name = f"query scale {alpha}, exact +{bonus}"
            tried[name] = Setting(Fusion(alpha=alpha, importance=importance), bonus)
    for k in (10, 60):
        tried[f"RRF k={k}, exact +0.1"] = Setting(Fusion(method="rrf", k=k, importance=importance), 0.1)
    return tried
