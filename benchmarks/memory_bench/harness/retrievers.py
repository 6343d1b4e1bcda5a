"""Retrievers: the interface that the harness expects, and the built-in retrievers.

A retriever is an object with a method `retrieve(query, k)`, or a plain function of the same arguments. If the object
also has a method `retrieve_in(query, k, scope)`, the harness calls that method for questions with a scope. Otherwise
the retriever ranks the whole corpus and the harness keeps the rows of the scope, which is slower.
"""

import importlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import typer

from memory_bench.harness.dataset import Dataset, Memory
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.postgres import BenchmarkDatabase
from memory_recall import (
    EVERYONE,
    EmbeddedQuery,
    Everyone,
    Fusion,
    HybridRecall,
    Lexical,
    Mode,
    RecallOptions,
    RecallQuery,
    SortBy,
)
from memory_recall.contrib.sqlite import SqliteRecall
from tests.support.sqlite_schema import create_schema

_TIME_BUDGET = 60.0  # seconds; what is measured here is quality
_GIN, _HNSW = "idx_memories_search", "idx_memories_embedding"
_SQLITE_COLUMNS = "id, content, category, tags, expanded_keywords, importance, user_id"


@runtime_checkable
class Retriever(Protocol):
    """The interface of a retriever; `retrieve` is the only method that every retriever has."""

    def retrieve(self, query: str, k: int) -> list[int]:
        """Return the ids of at most `k` memories, best first."""
        ...


class RetrieverAdapter:
    """A wrapper that gives any retriever all methods that the harness calls."""

    def __init__(self, wrapped: Retriever | Callable[[str, int], list[int]], *, name: str | None = None) -> None:
        self._wrapped: Any = wrapped
        self._retrieve: Callable[[str, int], list[int]] = (
            wrapped.retrieve if isinstance(wrapped, Retriever) else wrapped
        )
        self.name = name or str(getattr(wrapped, "name", getattr(wrapped, "__name__", type(wrapped).__name__)))
        self._scopes: dict[int, str | None] = {}

    def build_index(self, corpus: Sequence[Memory]) -> None:
        """Let the retriever index the corpus, if the retriever has a method for indexing."""
        self._scopes = {memory.id: memory.scope for memory in corpus}
        if hasattr(self._wrapped, "build_index"):
            self._wrapped.build_index(corpus)

    def index_size_bytes(self) -> int | None:
        """Return the size of the retriever's index in bytes, or None if the retriever does not report it."""
        size = getattr(self._wrapped, "index_size_bytes", None)
        return None if size is None else int(size())

    def retrieve(self, query: str, k: int, scope: str | None) -> list[int]:
        """Return the ids of at most `k` memories of the scope, best first; None as scope means the whole corpus."""
        if scope is None:
            return self._retrieve(query, k)[:k]
        if hasattr(self._wrapped, "retrieve_in"):
            return list(self._wrapped.retrieve_in(query, k, scope))[:k]
        everything = self._retrieve(query, len(self._scopes))
        return [one for one in everything if self._scopes.get(one) == scope][:k]

    def close(self) -> None:
        """Close the retriever, if the retriever has a method for closing."""
        if hasattr(self._wrapped, "close"):
            self._wrapped.close()


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of one retriever of the recall library: the legs that it searches, and how it fuses their results.

    With `exact`, the dense leg scans all vectors without the HNSW index. With `concept_graph`, there is a graph leg. A
    `fusion` of None is the model's default.
    """

    mode: Mode
    lexical: Lexical = "bm25"
    fusion: Fusion | None = None
    exact: bool = False
    concept_graph: bool = False
    sort_by: SortBy = SortBy.RELEVANCE

    @property
    def indexes(self) -> tuple[str, ...]:
        """The names of the indexes that this variant uses."""
        dense = () if self.exact else (_HNSW,)
        return {"lexical": (_GIN,), "dense": dense, "hybrid": (_GIN, *dense)}[self.mode]


VARIANTS: Mapping[str, Variant] = {
    "pg-ts-rank": Variant("lexical", "ts_rank"),
    "pg-bm25": Variant("lexical"),
    "dense-exact": Variant("dense", exact=True),
    "dense-hnsw": Variant("dense"),
    "hybrid": Variant("hybrid"),
    "hybrid-graph": Variant("hybrid", concept_graph=True),
    "hybrid-60": Variant("hybrid", fusion=Fusion(alpha=0.6)),
    "hybrid-80": Variant("hybrid", fusion=Fusion(alpha=0.8)),
    "hybrid-no-prior": Variant("hybrid", fusion=Fusion(importance=False)),
    "hybrid-tm2c2-70": Variant("hybrid", fusion=Fusion(alpha=0.7, lexical_scale="list")),
    "hybrid-tm2c2-80": Variant("hybrid", fusion=Fusion(alpha=0.8, lexical_scale="list")),
    "hybrid-rrf-10": Variant("hybrid", fusion=Fusion(method="rrf", k=10)),
    "hybrid-rrf-60": Variant("hybrid", fusion=Fusion(method="rrf", k=60)),
    "hybrid-ts-rank": Variant("hybrid", "ts_rank"),
    "plain-rrf-60": Variant("hybrid", "ts_rank", Fusion(method="rrf", k=60)),
    "pg-ts-rank-by-importance": Variant("lexical", "ts_rank", sort_by=SortBy.IMPORTANCE),
    "pg-bm25-by-importance": Variant("lexical", sort_by=SortBy.IMPORTANCE),
    "dense-by-importance": Variant("dense", sort_by=SortBy.IMPORTANCE),
    "hybrid-by-importance": Variant("hybrid", sort_by=SortBy.IMPORTANCE),
}


class PostgresRetriever:
    """A retriever that runs one variant of the recall library, on a database that all variants share.

    `vectors` maps the text of each question to its embedding.
    """

    def __init__(
        self, name: str, database: BenchmarkDatabase, embedded: EmbeddedSet | None, vectors: Mapping[str, EmbeddedQuery]
    ) -> None:
        self.name = name
        self._variant = VARIANTS[name]
        self._database = database
        self._embedded = embedded
        self._vectors = vectors
        self._recall: HybridRecall | None = None

    def build_index(self, corpus: Sequence[Memory]) -> None:
        """Fill the database, unless another retriever has filled it already."""
        self._database.fill(corpus, self._embedded)
        # Without index scans the planner has to compare the query with every row.
        pool = (
            self._database.pool("exact", enable_indexscan="off")
            if self._variant.exact
            else self._database.pool("plain")
        )
        if self._variant.concept_graph:
            self._database.fill_graph()
        self._recall = HybridRecall(
            pool,
            None,
            RecallOptions(
                lexical=self._variant.lexical,
                fusion=self._variant.fusion,
                time_budget=_TIME_BUDGET,
                concept_graph=self._variant.concept_graph,
            ),
        )

    def index_size_bytes(self) -> int:
        """Return the size of the indexes that this variant uses, in bytes."""
        return self._database.size_of(*self._variant.indexes) if self._variant.indexes else 0

    def retrieve(self, query: str, k: int) -> list[int]:
        """Return the ids of at most `k` memories of the whole corpus, best first."""
        return self._search(query, k, EVERYONE)

    def retrieve_in(self, query: str, k: int, scope: str) -> list[int]:
        """Return the ids of at most `k` memories of one user, best first."""
        return self._search(query, k, scope)

    def _search(self, query: str, k: int, user_id: str | Everyone) -> list[int]:
        if self._recall is None:
            raise RuntimeError("build_index was not called")
        variant = self._variant
        asked = RecallQuery(
            query, user_id=user_id, limit=k, mode=variant.mode, sort_by=variant.sort_by, vector=self._vectors.get(query)
        )
        result = self._database.wait(self._recall.recall(asked))
        if result.reason is not None:
            raise RuntimeError(
                f"{self.name} degraded to its lexical leg ({result.reason}); its numbers would not be its own"
            )
        return [int(one) for one in result.ids]

    def close(self) -> None:
        """End the background work of the recall library; the shared database stays open."""
        if self._recall is not None:
            self._database.wait(self._recall.close())


class SqliteModeRetriever:
    """A retriever that runs the library's SQLite mode, over a database in memory.

    It returns rows that match all words, then rows that match any word, each ordered by bm25 blended with importance.
    """

    def __init__(self, sort_by: SortBy = SortBy.RELEVANCE) -> None:
        self.name = "sqlite-fts5" if sort_by is SortBy.RELEVANCE else f"sqlite-fts5-by-{sort_by}"
        self._sort_by = sort_by
        self._connection = sqlite3.connect(":memory:")
        create_schema(self._connection)

    def build_index(self, corpus: Sequence[Memory]) -> None:
        """Insert the corpus into the table, whose triggers fill the full-text index."""
        self._connection.executemany(
            f"INSERT INTO memories ({_SQLITE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  (our own column list)
            [
                (one.id, one.content, one.category, one.tags, one.expanded_keywords, one.importance, one.scope)
                for one in corpus
            ],
        )
        self._connection.commit()

    def index_size_bytes(self) -> int:
        """Return the size of table and index together in bytes; SQLite stores both in one file."""
        pages, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * size)

    def retrieve(self, query: str, k: int) -> list[int]:
        """Return the ids of at most `k` memories of the whole corpus, best first."""
        return self._search(query, k, EVERYONE)

    def retrieve_in(self, query: str, k: int, scope: str) -> list[int]:
        """Return the ids of at most `k` memories of one user, best first."""
        return self._search(query, k, scope)

    def _search(self, query: str, k: int, user_id: str | Everyone) -> list[int]:
        asked = RecallQuery(query, user_id=user_id, limit=k, sort_by=self._sort_by)
        return [int(one) for one in SqliteRecall(self._connection).recall(asked).ids]

    def close(self) -> None:
        """Close the in-memory database, which deletes it."""
        self._connection.close()


_SQLITE: Mapping[str, Callable[[], Retriever]] = {
    "sqlite-fts5": SqliteModeRetriever,
    "sqlite-fts5-by-importance": lambda: SqliteModeRetriever(SortBy.IMPORTANCE),
}
LEXICAL = (*_SQLITE, *(name for name, variant in VARIANTS.items() if variant.mode == "lexical"))
BUILT_IN = (*_SQLITE, *VARIANTS)


def make_retriever(
    name: str, dataset: Dataset, database: BenchmarkDatabase, embedded: EmbeddedSet | None
) -> RetrieverAdapter:
    """Make a retriever; `name` is the name of a built-in retriever, or `package.module:Attribute`.

    Raises:
        typer.BadParameter: there is no such retriever, or the retriever needs vectors and `embedded` is None.
    """
    if name in _SQLITE:
        return RetrieverAdapter(_SQLITE[name]())
    if name in VARIANTS:
        if VARIANTS[name].mode != "lexical" and embedded is None:
            raise typer.BadParameter(f"{name} needs vectors: give --embedder-url.")
        vectors = {}
        if embedded is not None:
            pairs = zip(dataset.queries, embedded.queries.tolist(), strict=True)
            vectors = {query.text: EmbeddedQuery(vector, embedded.model) for query, vector in pairs}
        return RetrieverAdapter(PostgresRetriever(name, database, embedded, vectors))
    module, _, attribute = name.partition(":")
    if not attribute:
        raise typer.BadParameter(f"{name} is neither built in nor of the form package.module:Class.")
    made = getattr(importlib.import_module(module), attribute)
    return RetrieverAdapter(made() if isinstance(made, type) else made)
