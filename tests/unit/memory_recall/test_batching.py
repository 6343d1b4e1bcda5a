"""Requests are cut by tokens and rows, lose nothing and keep the order."""

from hypothesis import given
from hypothesis import strategies as st

from memory_recall.indexing.pipeline import BatchLimits, batches, estimated_tokens
from memory_recall.indexing.queue_sql import PendingRow


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
