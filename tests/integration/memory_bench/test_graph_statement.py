"""The recall statement with the graph leg ranks as a reference does that computes it over whole lists."""

from typing import Any

import numpy as np
import pytest

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.postgres import BenchmarkDatabase
from memory_recall import EVERYONE, EmbeddedQuery, HybridRecall, RecallOptions, RecallQuery
from tests.integration.memory_bench.evidence import gather, read_lexemes
from tests.integration.memory_bench.reference_graph import rankings

MEMORIES, QUESTIONS, DIMENSIONS = 400, 30, 16
CONSONANTS = "bcdfgkmnpqtvwxz"
LONG_BUDGET = 60.0


def words(chance: np.random.Generator, count: int) -> str:
    """Return invented words, which the stemmer leaves as they are; a few are frequent and most are rare."""
    numbers = (chance.pareto(0.6, count) * 4).astype(int) % 900
    return " ".join(CONSONANTS[n % 15] + CONSONANTS[n // 15 % 15] + CONSONANTS[n // 225] + "xq" for n in numbers)


def small_set() -> tuple[Dataset, EmbeddedSet]:
    """Return a set of invented texts, a third of whose questions are prompts; all vectors are exact as `halfvec`."""
    chance = np.random.default_rng(5)
    memories = tuple(
        Memory(number, words(chance, 14), importance=float(chance.integers(0, 9) / 8))
        for number in range(1, MEMORIES + 1)
    )
    queries = tuple(
        Query(f"q{number}", words(chance, 70 if number % 3 == 0 else 4), "multihop", None, frozenset({1}))
        for number in range(QUESTIONS)
    )
    vectors = np.zeros((MEMORIES, DIMENSIONS), dtype=np.float32)
    for row in vectors:
        row[chance.choice(DIMENSIONS, 4, replace=False)] = chance.choice([-0.5, 0.5], 4)
    asked = chance.integers(-2047, 2048, (QUESTIONS, DIMENSIONS)).astype(np.float32) / 2048
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    return Dataset("small", memories, queries, 0, ""), EmbeddedSet("m", vectors, asked)


@pytest.fixture
def database(postgres: Any) -> Any:
    """The small set in a database of its own, with a filled concept graph."""
    database = BenchmarkDatabase(postgres.superuser_dsn())
    dataset, embedded = small_set()
    database.fill(dataset.memories, embedded)
    database.fill_graph()
    database.pool("plain")
    yield database
    database.close()


async def recalled(database: BenchmarkDatabase, dataset: Dataset, embedded: EmbeddedSet) -> list[list[int]]:
    recall = HybridRecall(database.pool("plain"), None, RecallOptions(time_budget=LONG_BUDGET))
    asked = [
        RecallQuery(query.text, user_id=EVERYONE, vector=EmbeddedQuery(vector, None))
        for query, vector in zip(dataset.queries, embedded.queries.tolist(), strict=True)
    ]
    found = [(await recall.recall(one)).ids for one in asked]
    await recall.close()
    return found


def test_the_statement_gives_the_ranking_of_the_reference(database: BenchmarkDatabase) -> None:
    """For questions, some of which the graph changes, and for prompts, which it leaves alone."""
    dataset, embedded = small_set()
    evidence = gather(read_lexemes(dataset, database), embedded)
    expected, plain = (rankings(dataset, evidence, embedded, weight=weight) for weight in (0.2, 0.0))
    changed = [number for number in range(QUESTIONS) if expected[number] != plain[number]]
    assert len(changed) > QUESTIONS // 3
    assert not [number for number in changed if number % 3 == 0]
    assert database.wait(recalled(database, dataset, embedded)) == expected
