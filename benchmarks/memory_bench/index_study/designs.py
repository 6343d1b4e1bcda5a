"""The indexes that the study compares, and the settings in which each is searched (ADR 30)."""

from dataclasses import dataclass
from typing import Literal

from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M
from memory_recall.hnsw.search_effort import DENSE_DEPTH, SearchedGraph

Kind = Literal["halves", "signs", "centred signs", "first dimensions"]
SMALLER: tuple[Kind, ...] = ("signs", "centred signs", "first dimensions")
LEAST_RECALL = 0.99  # of the fifty nearest
CANDIDATES = (100, 200, 400, 800)
EF_CONSTRUCTION = DEFAULT_EF_CONSTRUCTION
_PGVECTORS_M = 16
_MAX_EF_SEARCH = 1000  # pgvector's own limit
_SHARE_OF_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Design:
    """An HNSW index over one form of the vectors, with `m` links."""

    kind: Kind
    m: int = DEFAULT_M

    def __str__(self) -> str:
        """Return the name that tables show."""
        return f"{self.kind}, m {self.m}"

    @property
    def index(self) -> str:
        """The name of the Postgres index."""
        return f"idx_study_{self.kind.replace(' ', '_')}_{self.m}"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a design is searched: with which `ef_search`, and how many candidates are ordered anew by their halves.

    Without candidates the index's own order is the result.
    """

    design: Design
    ef_search: int
    candidates: int | None = None

    def __str__(self) -> str:
        """Return the name that tables show."""
        taken = "" if self.candidates is None else f", first {self.candidates}"
        return f"{self.design}{taken}, ef {self.ef_search}"


TODAY = Design("halves")


def designs(*, centred: bool) -> tuple[Design, ...]:
    """Return today's index and the smaller ones; with `centred` False the vectors have their mean at zero already."""
    smaller = (Design("signs", _PGVECTORS_M), Design("signs"), Design("centred signs"), Design("first dimensions"))
    return (TODAY, *(one for one in smaller if centred or one.kind != "centred signs"))


def settings(design: Design, rows: int) -> list[Setting]:
    """Return the settings in which a design is searched in a table of `rows` rows."""
    if design == TODAY:
        return [Setting(design, SearchedGraph(rows, design.m, EF_CONSTRUCTION).ef_search(DENSE_DEPTH))]
    return [
        Setting(design, min(times * candidates, _MAX_EF_SEARCH), candidates)
        for candidates in CANDIDATES
        for times in (1, 2)
    ]


def first_dimensions(dimensions: int) -> int:
    """Return how many of a vector's dimensions the index over the first dimensions keeps."""
    return dimensions // _SHARE_OF_DIMENSIONS
