"""Gathers the candidates and scores of both legs for every question of a set once, so that any fusion can be tried.

The lexical leg here is BM25 without a candidate budget, computed by the `bm25s` library over the lexemes that Postgres
made. The dense leg here compares the query with every vector. Each leg contributes as many candidates as in the SQL
statement of recall, and each candidate gets its scores in both legs. Comparing fusion on this evidence with the SQL
statement shows what the statement's candidate budget costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.dataset import Dataset, Query
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.postgres import BenchmarkDatabase
from memory_recall.hnsw.search_effort import DENSE_DEPTH
from memory_recall.search.sql.bm25_scoring import ENOUGH_RARE_TERMS, K1, B
from tests.support.reference_fusion import Candidate

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The candidates of one question, and its lexical and dense rankings.

    `whole_query_score` is the lexical score that a row of mean length with every word of the question once would have.
    `max_lexical_score` is the same score with an upper limit, which matters for long questions; fusion divides lexical
    scores by `max_lexical_score`. Both are None for a question without lexemes. `complete` holds the ids of the
    candidates that contain every word of the question.
    """

    query: Query
    candidates: tuple[Candidate, ...]
    max_lexical_score: float | None
    whole_query_score: float | None
    complete: frozenset[int]
    lexical: tuple[int, ...]
    lexical_scores: Mapping[int, float]
    dense: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lexemes:
    """The lexemes of a set's memories and questions, as Postgres parses them."""

    memories: tuple[tuple[str, ...], ...]  # with repetition, in the set's order
    queries: tuple[tuple[str, ...], ...]


def read_lexemes(dataset: Dataset, database: BenchmarkDatabase) -> Lexemes:
    """Read the lexemes of memories and questions from a database that contains the set."""

    async def work() -> tuple[list[Any], list[Any]]:
        pool = database.pool("plain")
        rows = await pool.fetch(
            "SELECT m.id, array_agg(u.lexeme) AS lexemes, array_agg(cardinality(u.positions)) AS times"
            " FROM memories m, unnest(m.search_vector) u GROUP BY m.id"
        )
        query_rows = await pool.fetch(
            "SELECT n, tsvector_to_array(to_tsvector('english', text)) AS lexemes"
            " FROM unnest($1::text[]) WITH ORDINALITY AS q(text, n) ORDER BY n",
            [query.text for query in dataset.queries],
        )
        return rows, query_rows

    rows, query_rows = database.wait(work())
    found = {row["id"]: _repeated(row["lexemes"], row["times"]) for row in rows}
    memories = tuple(found.get(memory.id, ()) for memory in dataset.memories)
    return Lexemes(memories, tuple(tuple(row["lexemes"]) for row in query_rows))


def _repeated(lexemes: Sequence[str], times: Sequence[int]) -> tuple[str, ...]:
    return tuple(word for word, often in zip(lexemes, times, strict=True) for _ in range(often))


def gather(dataset: Dataset, lexemes: Lexemes, embedded: EmbeddedSet) -> list[Evidence]:
    """Return the evidence of every question, in the set's order."""
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index([list(words) for words in lexemes.memories], show_progress=False)
    frequency: dict[str, int] = {}
    for memory_lexemes in lexemes.memories:
        for word in set(memory_lexemes):
            frequency[word] = frequency.get(word, 0) + 1
    similarities = embedded.queries @ embedded.memories.T
    gatherer = _Gatherer(dataset, [frozenset(words) for words in lexemes.memories], frequency)
    found = []
    for number, query in enumerate(dataset.queries):
        words = [word for word in lexemes.queries[number] if word in frequency]
        scores = index.get_scores(words) * (K1 + 1) if words else np.zeros(len(dataset.memories))
        found.append(
            gatherer.gather(query, frozenset(lexemes.queries[number]), scores.astype(np.float64), similarities[number])
        )
    return found


class _Gatherer:
    def __init__(self, dataset: Dataset, words: Sequence[frozenset[str]], frequency: Mapping[str, int]) -> None:
        self._ids = np.array([memory.id for memory in dataset.memories])
        self._importance = [memory.importance for memory in dataset.memories]
        self._scopes = np.array([memory.scope or "" for memory in dataset.memories])
        self._words = words
        self._frequency = frequency

    def gather(self, query: Query, words: frozenset[str], lexical: Scores, dense: Scores) -> Evidence:
        inside = np.ones(len(self._ids), dtype=bool) if query.scope is None else self._scopes == query.scope
        lexical_order = self._best(np.where(inside & (lexical > 0), lexical, -np.inf))
        dense_order = self._best(np.where(inside, dense, -np.inf))
        lexical_rank = {place: rank for rank, place in enumerate(lexical_order[:DENSE_DEPTH], start=1)}
        dense_rank = {place: rank for rank, place in enumerate(dense_order[:DENSE_DEPTH], start=1)}
        places = list(dict.fromkeys([*lexical_rank, *dense_rank]))
        whole = sum(self._weight(self._frequency.get(word, 0)) for word in words) if words else None
        candidates = tuple(
            Candidate(
                int(self._ids[place]),
                self._importance[place],
                lexical_rank.get(place),
                float(lexical[place]),
                dense_rank.get(place),
                float(dense[place]),
            )
            for place in places
        )
        return Evidence(
            query=query,
            candidates=candidates,
            max_lexical_score=None if whole is None else min(whole, ENOUGH_RARE_TERMS * self._weight(0)),
            whole_query_score=whole,
            complete=frozenset(int(self._ids[place]) for place in places if words and words <= self._words[place]),
            lexical=tuple(int(self._ids[place]) for place in lexical_order),
            lexical_scores={int(self._ids[place]): float(lexical[place]) for place in lexical_order},
            dense=tuple(int(self._ids[place]) for place in dense_order[:DENSE_DEPTH]),
        )

    def _best(self, scores: Scores) -> list[int]:
        order = np.lexsort((self._ids, -scores))
        kept: list[int] = order[np.isfinite(scores[order])].tolist()
        return kept

    def _weight(self, frequency: int) -> float:
        return float(np.log(1 + (len(self._ids) - frequency + 0.5) / (frequency + 0.5)))
