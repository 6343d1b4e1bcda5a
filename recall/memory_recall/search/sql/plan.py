"""The plan of one recall statement, built after readiness, statistics and the query's vector are known."""

from dataclasses import dataclass, field, replace

from memory_recall.hnsw.search_effort import DENSE_DEPTH, UNKNOWN_GRAPH, SearchedGraph
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn
from memory_recall.search.fusion import Fusion, SortBy
from memory_recall.search.period import Period
from memory_recall.search.query import EmbeddedQuery, FurtherWords, Lexical, RecallQuery
from memory_recall.search.result import Degraded
from memory_recall.search.sql.bm25 import MAX_ROWS_PER_TERM, CollectionStatistics

DEFAULT_FUSION = Fusion()
MAX_DEPTH = 1_000  # rows of a leg: more candidates than that no scan of an HNSW index keeps
PLANNED_ANEW_ABOVE = 20_000  # rows; of fewer, either way to search a user's memories finds all in a tenth of a second


@dataclass(frozen=True, slots=True)
class DenseLeg:
    """How the dense leg searches: with which vector of the query, in which column, and by which index."""

    embedded: EmbeddedQuery
    iterative_scan: bool = True
    column: VectorColumn = ACTIVE
    hnsw: SearchedGraph = UNKNOWN_GRAPH


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """Everything that decides how a recall statement is written.

    `refusal` is the reason why a requested dense leg takes no part. `has_state` says whether the state table, which
    names the active model, exists. `superseding` says whether any memory is recorded as superseded. `concept_graph`
    says whether the table's concept graph is filled and may be read. `compiles` says whether Postgres might compile the
    statement (JIT), and `keeps_plans` whether it might execute the statement by a plan that it keeps. With `statistics`
    None the lexical leg ranks by `ts_rank`. With `own_columns` True, the memories come with all columns of the table.
    `further` are words that the BM25 leg searches beside the query's own.

    What follows from these is computed once. `selective` says whether filters or an owner restrict the search. `depth`
    is how many rows each leg returns: 50, or as many as the page needs, at most `MAX_DEPTH`. `lexical_is_final` says
    whether the order of the lexical leg is kept as it is, and `has_graph_leg` whether the concept graph is a third leg,
    provided that the dense leg takes part.
    """

    query: RecallQuery
    table: MemoryTable
    lexical: Lexical = "bm25"
    fusion: Fusion = DEFAULT_FUSION
    period: Period | None = None
    dense: DenseLeg | None = None
    refusal: Degraded | None = None
    has_state: bool = False
    superseding: bool = False
    concept_graph: bool = False
    compiles: bool = False
    keeps_plans: bool = False
    statistics: CollectionStatistics | None = None
    rows_per_term: int = MAX_ROWS_PER_TERM
    own_columns: bool = False
    further: FurtherWords | None = None

    selective: bool = field(init=False)
    depth: int = field(init=False)
    lexical_is_final: bool = field(init=False)
    has_graph_leg: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "selective", self.query.selective)
        object.__setattr__(self, "lexical_is_final", self._is_lexical_final())
        object.__setattr__(self, "depth", self._depth())
        object.__setattr__(self, "has_graph_leg", self._has_graph_leg())

    @property
    def has_word_scores(self) -> bool:
        """Whether the lexical leg yields scores that relevance can be computed from: by BM25, for a ranked query."""
        return not self.lexical_is_final and (self.query.mode != "dense" or self.dense is None)

    @property
    def computes_relevance(self) -> bool:
        """Whether the query asks for relevance, and it can be computed."""
        return self.query.least_relevance != "everything" and self.has_word_scores

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Postgres that the statement's transaction needs before Postgres plans the statement.

        A statement that one session has sent five times may get a plan for any user and any filter. By it, a user of
        ten memories is searched for as one of a million is, through the vector index, which ends before it comes to
        them. Or all memories of the user of a million are read, as if they were ten.
        """
        settings = {"jit": "off"} if self.compiles else {}
        if self.keeps_plans and self.selective and self.dense is not None and self.dense.hnsw.rows > PLANNED_ANEW_ABOVE:
            settings["plan_cache_mode"] = "force_custom_plan"
        return settings

    def without_dense(self, refusal: Degraded) -> "RecallPlan":
        """Return the same plan with the lexical leg alone, for the reason `refusal`."""
        return replace(self, dense=None, refusal=refusal)

    def without_graph(self) -> "RecallPlan":
        """Return the same plan without the graph leg."""
        return replace(self, concept_graph=False)

    def _is_lexical_final(self) -> bool:
        """`ts_rank` includes importance already, and a query that is not ordered by score needs no other order."""
        return self.lexical == "ts_rank" or self.statistics is None or not self.query.ranked

    def _depth(self) -> int:
        """Return how many rows each leg returns.

        BM25 returns as many rows without a dense leg as with one, so that importance reorders the same rows. A lexical
        leg that decides the order alone returns all rows of the page and of the pages before it.
        """
        wanted = self.query.limit + self.query.offset
        if self.lexical_is_final and self.dense is None:
            return wanted
        return min(max(DENSE_DEPTH, wanted), MAX_DEPTH)

    def _has_graph_leg(self) -> bool:
        """The graph is a leg of hybrid recalls by relevance alone.

        It starts from the fused order of the other two legs and adds to their scores. Its weight was measured beside
        the convex combination, the scores of reciprocal rank fusion being of another size, and it needs the statistics
        that BM25 has and `ts_rank` lacks.
        """
        known = self.statistics is not None and self.statistics.rows > 1 and not self.lexical_is_final
        hybrid = self.dense is not None and self.query.mode == "hybrid" and self.query.sort_by is SortBy.RELEVANCE
        return self.concept_graph and known and hybrid and self.fusion.method == "convex"
