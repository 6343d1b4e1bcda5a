"""Requests are cut by tokens and rows, and writes beside a vector index leave room for others."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgvector import HalfVector

from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.indexing.pipeline import (
    BACKGROUND,
    BULK,
    FRESH,
    BatchLimits,
    batches,
    beside_index,
    estimated_tokens,
)
from memory_recall.indexing.queue_sql import PendingRow, encoded
from memory_recall.indexing.retry import Outcome


@given(
    lengths=st.lists(st.integers(0, 4000), max_size=60),
    tokens=st.integers(1, 3000),
    rows=st.integers(1, 20),
)
def test_batches_partition_the_rows_within_the_limits(lengths: list[int], tokens: int, rows: int) -> None:
    limits = BatchLimits(tokens=tokens, rows=rows, max_tokens_per_row=256)
    todo = [PendingRow(number, "x" * length, "") for number, length in enumerate(lengths)]
    cut = list(batches(todo, limits))
    assert [row for batch in cut for row in batch] == todo
    for batch in cut:
        assert 1 <= len(batch) <= rows
        assert len(batch) == 1 or sum(estimated_tokens(row.text, limits) for row in batch) <= tokens


def test_a_long_text_counts_as_at_most_the_tokens_that_the_model_reads() -> None:
    limits = BatchLimits(max_tokens_per_row=256)
    assert estimated_tokens("x" * 1_000_000, limits) == 256


def test_what_waits_to_be_stored_holds_no_texts() -> None:
    """Dozens of batches may wait, so their texts together could be hundreds of megabytes."""
    answer, error = EmbeddedBatch(np.ones((1, 8), np.float32), 1), "EmbedderRejected"
    outcome = Outcome(embedded=[([PendingRow(1, "text", "a")], answer)], failed=[(PendingRow(2, "text", "b"), error)])
    expected = Outcome(embedded=[([PendingRow(1, "", "a")], answer)], failed=[(PendingRow(2, "", "b"), error)])
    assert outcome.without_texts() == expected


@pytest.mark.parametrize("seconds", [0.0, 0.01, 3.0])
def test_background_writes_pause_as_long_as_they_took(seconds: float) -> None:
    assert BACKGROUND.rest(seconds) == pytest.approx(seconds)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_workers_of_a_backfill_beside_the_index_write_for_half_of_the_time_together(workers: int) -> None:
    seconds = 3.0
    assert workers * seconds / (seconds + beside_index(workers).rest(seconds)) == pytest.approx(0.5)


def test_bulk_and_fresh_writes_do_not_pause() -> None:
    assert BULK.rest(5.0) == FRESH.rest(5.0) == 0


def test_statements_are_short_where_a_vector_index_exists() -> None:
    """Each locks its rows until its last row is in the index's graph."""
    assert max(FRESH.rows, BACKGROUND.rows) * 16 <= BULK.rows


def _page(rows: int) -> list[PendingRow]:
    return [PendingRow(number, "text", "hash") for number in range(rows)]


@given(st.integers(0, 3000))
def test_scattering_keeps_every_row(rows: int) -> None:
    assert sorted(row.id for row in BACKGROUND.arranged(_page(rows))) == list(range(rows))


def test_a_statement_of_scattered_writes_holds_no_adjacent_rows() -> None:
    """Adjacent rows share a block, and only a statement that has ended leaves room in it."""
    arranged = [row.id for row in BACKGROUND.arranged(_page(BACKGROUND.page_rows))]
    for first in range(0, len(arranged), BACKGROUND.rows):
        statement = sorted(arranged[first : first + BACKGROUND.rows])
        assert min(later - earlier for earlier, later in pairwise(statement)) >= 32


def test_other_writes_keep_the_order_of_ids() -> None:
    assert FRESH.arranged(_page(100)) == BULK.arranged(_page(100)) == _page(100)


def test_vectors_that_are_encoded_together_are_those_that_are_encoded_one_by_one() -> None:
    vectors = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)
    together = [vector.to_binary() for vector in encoded(vectors)]
    assert together == [HalfVector(vector).to_binary() for vector in vectors]
