"""The two methods that merge the lists of both legs into one, with their parameters and the constants of the scores.

Postgres computes the fusion inside the recall statement (`search.sql.fusion`).

- Reciprocal rank fusion (Cormack et al., 2009) adds `weight / (k + rank)` over the legs; a memory that a leg did not
  find gets nothing for it.
- The convex combination (Bruch et al., 2023) adds normalised scores: `alpha` times the dense one and `1 - alpha` times
  the lexical one. It is their TM2C2, in which each score is divided by the distance between the least that its leg can
  give and the best in this list, with two differences. A lexical score is divided by what the query could have scored,
  not by the best of the list, and squared: if only incidental terms match, the best of a bad list is no reason to
  outvote the dense leg. And the least similarity in the list counts as zero: TM2C2 adds the same constant to every
  memory, which changes no order by itself, but multiplied by importance it would drown everything else.

Importance is a prior, not a leg. It is applied once, after fusion, and so is closeness to the time that the query
names, if times are looked for. If only the lexical leg found anything, nothing is fused and its order stands.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from memory_recall.search.validation import check_fields

IMPORTANCE_BASE = 0.7
IMPORTANCE_SHARE = 0.3
CLOSENESS_SHARE = 0.5  # how much a memory gains that is of the time that the query names; ADR 0012


class SortBy(StrEnum):
    """The order of the results: best match first, best match with importance among equals, or newest first."""

    RELEVANCE = "relevance"
    IMPORTANCE = "importance"
    RECENCY = "recency"


NotNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Fusion:
    """One way of fusing, with its parameters. The defaults are those of ADR 0003.

    The convex combination uses `alpha` (0 to 1), the dense leg's weight, and two more. `lexical_scale` says how a
    lexical score is normalised: as its share of what the query could have scored, squared ("query") or not ("linear"),
    or as its share of the best score in the list ("list"). `dense_floor` is the least possible cosine, from which the
    best in the list is measured; None takes the least cosine in the list. Reciprocal rank fusion uses `k` and both
    weights. `importance` says whether importance is applied afterwards.

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
