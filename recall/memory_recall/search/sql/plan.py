"""The plan of one recall statement, built once readiness, statistics and the query's vector are known."""

from dataclasses import dataclass, replace

from memory_recall.hnsw.search_effort import DENSE_DEPTH, UNKNOWN_GRAPH, SearchedGraph
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn
from memory_recall.search.fusion import Fusion
from memory_recall.search.period import Period
from memory_recall.search.query import EmbeddedQuery, Lexical, RecallQuery
from memory_recall.search.result import Degraded
from memory_recall.search.sql.bm25 import MAX_ROWS_PER_TERM, CollectionStatistics

DEFAULT_FUSION = Fusion()


@dataclass(frozen=True, slots=True)
class DenseLeg:
    """How the dense leg searches: the query's vector, the column of vectors, and the index over it.

    In a database that knows model swaps, `check_column_model` also compares the active model with the one that an SQL
    function names for the column, since that function is right even within an old snapshot.
    """

    embedded: EmbeddedQuery
    iterative_scan: bool = True
    column: VectorColumn = ACTIVE
    check_column_model: bool = False
    graph: SearchedGraph = UNKNOWN_GRAPH


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """Everything that shapes one recall statement.

    `refusal` is why the dense leg takes no part although it was requested. `has_state` says whether the table of the
    active model exists, `compiles` whether Postgres might compile the statement (JIT). With `statistics` None the
    lexical leg ranks by `ts_rank`.
    """

    query: RecallQuery
    table: MemoryTable
    lexical: Lexical = "bm25"
    fusion: Fusion = DEFAULT_FUSION
    period: Period | None = None
    dense: DenseLeg | None = None
    refusal: Degraded | None = None
    has_state: bool = False
    compiles: bool = False
    statistics: CollectionStatistics | None = None
    rows_per_term: int = MAX_ROWS_PER_TERM

    @property
    def depth(self) -> int:
        """How many rows each leg gives; BM25 as many without a dense leg, so that importance reorders the same rows."""
        wanted = self.query.limit + self.query.offset
        return wanted if self.lexical_is_final and self.dense is None else max(DENSE_DEPTH, wanted)

    @property
    def lexical_is_final(self) -> bool:
        """Whether the order of the lexical leg is final: that of `ts_rank` includes importance already."""
        return self.lexical == "ts_rank" or self.statistics is None or not self.query.ranked

    def without_dense(self, refusal: Degraded) -> "RecallPlan":
        """Return the same plan with the lexical leg alone, for the reason `refusal`."""
        return replace(self, dense=None, refusal=refusal)
