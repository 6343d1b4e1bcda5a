"""Chooses how many candidates a search of the HNSW index keeps, by the table's size and the index's parameters.

With a fixed `hnsw.ef_search` a search finds a smaller share of the true neighbours as the table grows. To keep this
share, the value has to grow about with the cube root of the number of rows. A graph that was built with more links and
more candidates needs a smaller value (ADR 17).

A search of many partitions merges what their indexes yield. Most of them contribute little, so each scan keeps fewer
candidates, and goes on for further ones where its partition has more of the result (ADR 29).
"""

import math
from dataclasses import dataclass

from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M

DENSE_DEPTH = 50
_MAX_EF_SEARCH = 1000  # pgvector's own limit
_FEW_PARTITIONS = 4  # with fewer candidates in each of so few, a share of .007 of the neighbours was lost


@dataclass(frozen=True, slots=True)
class _Effort:
    margin: int  # ef_search over the leg's depth
    rows: float  # up to which that is enough
    filtered_rows: float  # up to which the first rows within a filter are the nearest


_DENSELY_LINKED = _Effort(margin=2, rows=10_000, filtered_rows=80_000)
_SPARSELY_LINKED = _Effort(margin=4, rows=6_250, filtered_rows=6_250)


@dataclass(frozen=True, slots=True)
class SearchedGraph:
    """The index that will be searched: its approximate number of rows, and the parameters that it was built with.

    An index with unknown parameters is searched like an index with few links: this takes longer, but misses no more
    neighbours.
    """

    rows: float = 0.0
    m: int = 0
    ef_construction: int = 0

    @property
    def exists(self) -> bool:
        """Whether there is an index."""
        return self.m > 0

    def ef_search(self, depth: int, *, partitions: int = 1) -> int:
        """Return `hnsw.ef_search` for a dense leg of `depth` rows: how many candidates a scan keeps.

        `partitions` is the number of partitions whose iterative scans are merged; up to four are searched as one is.
        """
        wanted = max(depth, DENSE_DEPTH) * self._effort.margin * _widening(self.rows / self._effort.rows)
        return min(round(wanted / _widening(partitions / _FEW_PARTITIONS)), _MAX_EF_SEARCH)

    def filtered_depth(self, depth: int) -> int:
        """Return how many matching rows a filtered scan must find, so that the nearest `depth` of them can be taken.

        This is more than `depth` in a large table, because an iterative scan runs in rounds and ends as soon as it has
        found enough rows, although a later round might find nearer ones.
        """
        return round(depth * _widening(self.rows / self._effort.filtered_rows))

    @property
    def _effort(self) -> _Effort:
        dense = self.m >= DEFAULT_M and self.ef_construction >= DEFAULT_EF_CONSTRUCTION
        return _DENSELY_LINKED if dense else _SPARSELY_LINKED


UNKNOWN_GRAPH = SearchedGraph()


def _widening(times: float) -> float:
    return max(1.0, math.cbrt(times))
