"""Short batches are filled up to a tile where that is faster, and nothing else about them changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_embedder.engine.attention_tile import TILE, fill_tile, worth_a_tile


@given(st.lists(st.integers(1, TILE + 5), min_size=1, max_size=TILE), st.integers(1, TILE))
def test_a_batch_of_at_least_so_many_tokens_and_less_than_a_tile_becomes_a_tile(lengths: list[int], least: int) -> None:
    sequences = [np.full(length, 7, dtype=np.int32) for length in lengths]
    filled = fill_tile(sequences, least)
    assert all(given is kept for given, kept in zip(sequences, filled, strict=False))
    expected = TILE if least <= sum(lengths) < TILE else sum(lengths)
    assert sum(map(len, filled)) == expected
    assert len(filled) <= len(sequences) + 1


@pytest.mark.parametrize("width", [128, 384, 768, 1024, 4096])
def test_the_threshold_is_where_both_ways_cost_the_same(width: int) -> None:
    least = worth_a_tile(width)
    assert least + 10 * least**2 / width >= TILE > (least - 1) + 10 * (least - 1) ** 2 / width


def test_the_wider_the_model_the_less_attention_counts() -> None:
    assert [worth_a_tile(width) for width in (384, 768, 1024)] == [34, 42, 45]
