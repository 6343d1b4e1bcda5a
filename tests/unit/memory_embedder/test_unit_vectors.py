"""Every vector has length one, and one that cannot have it is marked without harm to the others."""

from __future__ import annotations

import numpy as np
import pytest

from memory_embedder.engine.vectors import finite_scores, require_usable, unit_vectors, unusable_rows
from memory_embedder.errors import EmbedderError


def test_each_row_is_scaled_by_itself() -> None:
    rows = np.array([[3, 4, 0], [0, 0, 1e-6], [1e6, 1e6, 0]], dtype=np.float32)
    scaled = unit_vectors(rows)
    assert scaled.dtype == np.float32
    assert np.allclose(scaled, [[0.6, 0.8, 0], [0, 0, 1], [0.5**0.5, 0.5**0.5, 0]])
    assert unusable_rows(scaled) == []
    assert require_usable(scaled) is scaled


@pytest.mark.finding("embedder 1")
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -np.inf, 3e38], ids=str)
def test_a_row_without_a_finite_length_is_marked_whatever_the_others_are(value: float) -> None:
    rows = np.array([[3, 4], [0, value], [4, 3]], dtype=np.float32)
    scaled = unit_vectors(rows)
    assert np.allclose(scaled[[0, 2]], [[0.6, 0.8], [0.8, 0.6]])
    assert np.isnan(scaled[1]).all()
    assert unusable_rows(scaled) == [1]
    with pytest.raises(EmbedderError, match="not finite or has no length"):
        require_usable(scaled)


@pytest.mark.finding("embedder 1")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_a_score_that_is_not_finite_is_marked_and_zero_is_a_score(value: float) -> None:
    scores = finite_scores(np.array([[0.0], [value], [-3.5]], dtype=np.float32))
    assert unusable_rows(scores) == [1]
    assert scores[[0, 2], 0].tolist() == [0.0, -3.5]
