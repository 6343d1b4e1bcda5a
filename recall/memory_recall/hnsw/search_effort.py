"""How hard the HNSW index is searched, by the size of the table and by how densely its graph is linked.

A fixed `hnsw.ef_search` finds less and less of the true neighbours as the table grows, about with its cube root, and a
graph that was built with more links and more candidates finds as many with fewer (ADR 17).
"""

import math
from dataclasses import dataclass

from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M

DENSE_DEPTH = 50
_MAX_EF_SEARCH = 1000  # pgvector's own limit


@dataclass(frozen=True, slots=True)
class _Effort:
    margin: int  # ef_search over the leg's depth
    rows: float  # up to which that is enough
    filtered_rows: float  # up to which the first rows within a filter are the nearest


_DENSELY_LINKED = _Effort(margin=2, rows=10_000, filtered_rows=80_000)
_SPARSELY_LINKED = _Effort(margin=4, rows=6_250, filtered_rows=6_250)


@dataclass(frozen=True, slots=True)
class SearchedGraph:
    """The index that will be searched: about how many rows it holds, and whether it is linked as densely as ours are.

    What is not known counts as sparse, which costs time and loses nothing.
    """

    rows: float = 0.0
    m: int = 0
    ef_construction: int = 0

    @property
    def known(self) -> bool:
        """Whether there is an index."""
        return self.m > 0

    def ef_search(self, depth: int) -> int:
        """Return `hnsw.ef_search` for a leg of this depth: the number of candidates that the scan keeps."""
        wanted = max(depth, DENSE_DEPTH) * self._effort.margin * _widening(self.rows / self._effort.rows)
        return min(round(wanted), _MAX_EF_SEARCH)

    def filtered_depth(self, depth: int) -> int:
        """How many rows within a filter the scan gives before the nearest `depth` of them are taken.

        It goes round by round and ends at the first so many, whether or not nearer ones would come in the next round.
        """
        return round(depth * _widening(self.rows / self._effort.filtered_rows))

    @property
    def _effort(self) -> _Effort:
        dense = self.m >= DEFAULT_M and self.ef_construction >= DEFAULT_EF_CONSTRUCTION
        return _DENSELY_LINKED if dense else _SPARSELY_LINKED


UNKNOWN_GRAPH = SearchedGraph()


def _widening(times: float) -> float:
    return max(1.0, math.cbrt(times))
