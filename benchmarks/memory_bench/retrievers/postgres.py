"""The recall library over Postgres, in the settings that are worth comparing.

Every retriever here runs the statement that serves prompts. They differ in which legs take part and how these are
fused, and share one database, so that they search the very same rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memory_bench.dataset import Memory
from memory_bench.postgres import BenchmarkDatabase
from memory_bench.vectors import EmbeddedSet
from memory_recall.search.fusion import Fusion
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.query import Mode
from memory_recall.search.query_embedding import Embedded
from memory_recall.search.sql.statement import Lexical

_GIN, _HNSW = "idx_memories_search", "idx_memories_embedding"


@dataclass(frozen=True, slots=True)
class Variant:
    """One setting of the recall library."""

    mode: Mode
    lexical: Lexical = "bm25"
    fusion: Fusion = field(default_factory=Fusion)
    exact: bool = False

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes that it uses."""
        dense = () if self.exact else (_HNSW,)
        return {"lexical": (_GIN,), "dense": dense, "hybrid": (_GIN, *dense)}[self.mode]


VARIANTS: Mapping[str, Variant] = {
    "pg-ts-rank": Variant("lexical", "ts_rank"),
    "pg-bm25": Variant("lexical"),
    "pg-bm25-no-prior": Variant("lexical", fusion=Fusion(importance=False)),
    "dense-exact": Variant("dense", exact=True),
    "dense-hnsw": Variant("dense"),
    "hybrid": Variant("hybrid"),
    "hybrid-60": Variant("hybrid", fusion=Fusion(alpha=0.6)),
    "hybrid-80": Variant("hybrid", fusion=Fusion(alpha=0.8)),
    "hybrid-no-prior": Variant("hybrid", fusion=Fusion(importance=False)),
    "hybrid-tm2c2-70": Variant("hybrid", fusion=Fusion(alpha=0.7, lexical_scale="list")),
    "hybrid-tm2c2-80": Variant("hybrid", fusion=Fusion(alpha=0.8, lexical_scale="list")),
    "hybrid-rrf-10": Variant("hybrid", fusion=Fusion(method="rrf", k=10)),
    "hybrid-rrf-60": Variant("hybrid", fusion=Fusion(method="rrf", k=60)),
    "hybrid-ts-rank": Variant("hybrid", "ts_rank"),
    "plain-rrf-60": Variant("hybrid", "ts_rank", Fusion(method="rrf", k=60)),
}


class PostgresRetriever:
    """One variant over a shared database."""

    def __init__(
        self, name: str, database: BenchmarkDatabase, embedded: EmbeddedSet | None, vectors: Mapping[str, Embedded]
    ) -> None:
        self.name = name
        self._variant = VARIANTS[name]
        self._database = database
        self._embedded = embedded
        self._vectors = vectors
        self._recall: HybridRecall | None = None

    def build_index(self, corpus: Sequence[Memory]) -> None:
        """Fill the database, unless another variant has done it already."""
        self._database.fill(corpus, self._embedded)
        # Without index scans the planner has to compare the query with every row.
        pool = (
            self._database.pool("exact", enable_indexscan="off")
            if self._variant.exact
            else self._database.pool("plain")
        )
        self._recall = HybridRecall(pool, lexical=self._variant.lexical, fusion=self._variant.fusion)

    def index_size_bytes(self) -> int:
        """The size of the indexes that this variant uses."""
        return self._database.size_of(*self._variant.indexes) if self._variant.indexes else 0

    def retrieve(self, query: str, k: int) -> list[int]:
        """At most `k` ids, best first."""
        return self._ask(query, k, None)

    def retrieve_in(self, query: str, k: int, scope: str) -> list[int]:
        """The same among one user's memories."""
        return self._ask(query, k, scope)

    def _ask(self, query: str, k: int, scope: str | None) -> list[int]:
        if self._recall is None:
            raise RuntimeError("build_index was not called")
        vector = self._vectors.get(query)
        result = self._database.wait(
            self._recall.recall(query, limit=k, user_id=scope, mode=self._variant.mode, vector=vector)
        )
        if result.reason is not None:
            raise RuntimeError(f"{self.name} degraded to words ({result.reason}); its numbers would not be its own")
        return result.ids

    def close(self) -> None:
        """End the recall's background work; the database is shared and closed by its owner."""
        if self._recall is not None:
            self._database.wait(self._recall.close())
