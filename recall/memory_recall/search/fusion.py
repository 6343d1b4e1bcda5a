"""The two methods that fuse the lexical and the dense list into one, with their parameters and constants.

Postgres computes the fusion inside the recall statement (`search.sql.fusion`).

- Reciprocal rank fusion (Cormack et al., 2009) adds `weight / (k + rank)` over the legs; a leg adds nothing for a
  memory that it did not find.
- The convex combination (Bruch et al., 2023) adds normalised scores: `alpha` times the dense score and `1 - alpha`
  times the lexical score. It follows the variant that the authors call TM2C2, which normalises by the least score that
  a leg can give and the best score in the list. Two things differ here. A lexical score is divided by the score that a
  perfect match of the query would have, not by the best score in the list, and is then squared, because the best of a
  bad list should not outweigh the dense leg. The least cosine in the list counts as zero, because TM2C2 would otherwise
  add the same constant to the score of every memory, and importance would multiply this constant.

Importance is a prior, not a leg: the fused score is multiplied by it once. If the recall looks for a time in the query,
the fused score is also multiplied by how close the memory is to this time. If only the lexical leg found anything,
nothing is fused and the lexical order stays.

Where a table has a concept graph, the graph leg (`search.sql.graph`) starts from the first memories of the fused order
and adds to the scores of the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from memory_recall.search.validation import check_fields

IMPORTANCE_BASE = 0.7
IMPORTANCE_SHARE = 0.3
CLOSENESS_SHARE = 0.5  # how much a memory gains that is of the time that the query names; ADR 0012
GRAPH_WEIGHT = 0.2  # of the score in the concept graph, beside a fused score of at most one; ADR 0026
GRAPH_STARTS = 5  # memories of the fused order from which the graph leg starts
GRAPH_KEPT = 5  # first memories of the fused order that keep their places whatever the graph says


class SortBy(StrEnum):
    """The order of the results: best match first, best match with importance among equals, or newest first."""

    RELEVANCE = "relevance"
    IMPORTANCE = "importance"
    RECENCY = "recency"


NotNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Fusion:
    """One method of fusion, with its parameters. The defaults are those of ADR 0003; see also `default_fusion`.

    The convex combination has three parameters. `alpha` (0 to 1) is the weight of the dense leg. `lexical_scale` says
    by what a lexical score is divided: "query" and "linear" divide by the score of a memory that matches the query
    perfectly, and "query" also squares the quotient; "list" divides by the best score in the list.
    `dense_floor` is the cosine that counts as zero; the least cosine in the list stands for it if it is lower, or if
    `dense_floor` is None. Reciprocal rank fusion uses `k`, `lexical_weight` and `dense_weight`. With `importance` True,
    the fused score is multiplied by importance.

    Raises:
        InvalidInput: a parameter is out of range.
    """

    method: Literal["rrf", "convex"] = "convex"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.7
    lexical_scale: Literal["query", "linear", "list"] = "query"
    dense_floor: float | None = -1.0
    k: NotNegative = 10.0
    lexical_weight: NotNegative = 1.0
    dense_weight: NotNegative = 1.0
    importance: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


DENSE_FLOORS: Mapping[str, float] = {"bge-small-en-v1.5": 0.2, "multilingual-e5-small": 0.75}
"""The default `dense_floor` by model; for all other models it is -1. Only measured models are listed (ADR 23, 38)."""


def default_fusion(model: str | None) -> Fusion:
    """Return the default fusion for vectors of the model with this name; None stands for an unknown model.

    The cosines of some models lie closer together than those of others. Without a floor of its own, the dense leg of
    such a model would count for less.
    """
    return Fusion(dense_floor=DENSE_FLOORS.get(model or "", -1.0))
