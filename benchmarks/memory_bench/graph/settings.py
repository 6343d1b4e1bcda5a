"""The settings of the graph leg that are compared: how the graph is made, the walk, and the weight of a question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from memory_bench.graph.concept_graph import WALKS, Walk
from memory_recall.graph.concepts import Source

SOURCES: tuple[Source, ...] = ("names", "words")
COMMON = (0.02, 0.1)
STARTS = (5, 10)
WEIGHTS = (0.025, 0.05, 0.1, 0.2)
KEPT = (0, 5)
_HALF = 0.5
_MANY = 2  # concepts in a question from which on the factor `named` is one


@dataclass(frozen=True, slots=True)
class Question:
    """What the weight of a question is computed from; all shares are from 0 to 1.

    `doubt` is the tenth fused score over the first. `agreement` is the share of the first memories that share a concept
    with another one of them. `named` is the number of the graph's concepts that the question names. `brief` is the
    lexical score by which fusion divides, over that of a memory with every word of the question: it is well below one
    for a question inside a prompt.
    """

    doubt: float
    agreement: float
    named: int
    brief: float


_FIRST_FACTORS: Mapping[str, Callable[[Question], float]] = {
    "plain": lambda _: 1.0,
    "doubt": lambda one: one.doubt,
    "agreement": lambda one: one.agreement,
    "named": lambda one: min(1.0, one.named / _MANY),
    "agreement, named": lambda one: one.agreement * min(1.0, one.named / _MANY),
    "all three": lambda one: one.doubt * one.agreement * min(1.0, one.named / _MANY),
}
_SECOND_FACTORS: Mapping[str, Callable[[Question], float]] = {
    "brief": lambda one: one.brief,
    "brief squared": lambda one: one.brief**2,
    "brief above .5": lambda one: float(one.brief > _HALF),
    "brief of 1": lambda one: float(one.brief >= 1),
    "brief, agreement": lambda one: one.brief * one.agreement,
    "brief squared, agreement": lambda one: one.brief**2 * one.agreement,
    "brief above .5, agreement": lambda one: float(one.brief > _HALF) * one.agreement,
    "brief of 1, agreement": lambda one: float(one.brief >= 1) * one.agreement,
}
FACTORS = {**_FIRST_FACTORS, **_SECOND_FACTORS}


@dataclass(frozen=True, slots=True)
class Leg:
    """One graph and one way to walk it, from the first `starts` memories of the fused list."""

    source: Source
    common: float
    starts: int
    walk: Walk

    def __str__(self) -> str:
        """Return the leg's name in tables."""
        return f"{self.source}, common {self.common:g}, {self.walk} from {self.starts}"


@dataclass(frozen=True, slots=True)
class Weighting:
    """How much the graph leg's score counts beside a fused score, and how many first memories keep their places."""

    weight: float
    factor: str
    kept: int

    def __str__(self) -> str:
        """Return the weighting's name in tables."""
        return f"{self.weight:g} {self.factor}, {self.kept} kept"

    def of(self, question: Question) -> float:
        """Return the weight for one question."""
        return self.weight * FACTORS[self.factor](question)


Setting = tuple[Leg, Weighting]


def legs() -> Sequence[Leg]:
    """Return all legs that are compared."""
    return [Leg(*one) for one in product(SOURCES, COMMON, STARTS, WALKS)]


def first_family() -> Sequence[Setting]:
    """Return the first family of settings: every leg with every weighting that does not look at `brief`."""
    return list(product(legs(), (Weighting(*one) for one in product(WEIGHTS, _FIRST_FACTORS, KEPT))))


def second_family() -> Sequence[Setting]:
    """Return the second family: the legs that the first one chose, with the weightings that look at `brief`."""
    chosen = [Leg("words", 0.1, starts, "1 hop") for starts in STARTS]
    return list(product(chosen, (Weighting(*one) for one in product(WEIGHTS, _SECOND_FACTORS, KEPT))))
