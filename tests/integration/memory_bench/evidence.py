"""The candidates and scores of both legs for every question of a small set, computed over all of its memories.

The lexical scores are those of BM25 without a candidate budget, over the lexemes that Postgres made. Each leg
contributes as many candidates as in the recall statement, and each memory has its score in both legs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory_bench.harness.dataset import Dataset
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.postgres import BenchmarkDatabase
from memory_recall.hnsw.search_effort import DENSE_DEPTH
from memory_recall.search.sql.bm25_scoring import ENOUGH_RARE_TERMS, K1, B

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The places of one question's candidates in the set, and the lexical scores of all memories.

    `whole_query_score` is the lexical score that a row of mean length with every word of the question once would have.
    `max_lexical_score` is the same score with an upper limit, by which fusion divides lexical scores. Both are None
    for a question without lexemes.
    """

    candidates: frozenset[int]
    lexical_scores: Scores
    max_lexical_score: float | None
    whole_query_score: float | None


@dataclass(frozen=True, slots=True)
class Lexemes:
    """How often each memory has each lexeme, and the lexemes of each question, as Postgres parses them."""

    memories: Sequence[Mapping[str, int]]
    queries: Sequence[Sequence[str]]


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
    found = {row["id"]: dict(zip(row["lexemes"], row["times"], strict=True)) for row in rows}
    return Lexemes([found.get(memory.id, {}) for memory in dataset.memories], [row["lexemes"] for row in query_rows])


def gather(lexemes: Lexemes, embedded: EmbeddedSet) -> list[Evidence]:
    """Return the evidence of every question; all questions search the whole set."""
    count = len(lexemes.memories)
    frequency = Counter(word for memory in lexemes.memories for word in memory)
    lengths = np.array([sum(memory.values()) for memory in lexemes.memories], dtype=np.float64)
    damping = K1 * (1 - B + B * lengths / lengths.mean())
    similarities = embedded.queries @ embedded.memories.T

    def weight(word: str) -> float:
        return float(np.log(1 + (count - frequency[word] + 0.5) / (frequency[word] + 0.5)))

    def evidence(words: Sequence[str], dense: Scores) -> Evidence:
        times = {word: np.array([memory.get(word, 0) for memory in lexemes.memories]) for word in words}
        lexical = sum(
            (weight(word) * often * (K1 + 1) / (often + damping) for word, often in times.items()), np.zeros(count)
        )
        matching = [place for place in nearest(lexical) if lexical[place] > 0]
        whole = sum(map(weight, words)) if words else None
        limit = ENOUGH_RARE_TERMS * float(np.log(1 + (count + 0.5) / 0.5))
        return Evidence(
            candidates=frozenset(matching) | frozenset(nearest(dense)),
            lexical_scores=lexical,
            max_lexical_score=None if whole is None else min(whole, limit),
            whole_query_score=whole,
        )

    return [evidence(words, dense) for words, dense in zip(lexemes.queries, similarities, strict=True)]


def nearest(scores: Scores) -> list[int]:
    """Return the places of the best scores of one leg, as many as a leg contributes."""
    found: list[int] = np.argsort(-scores, kind="stable")[:DENSE_DEPTH].tolist()
    return found
