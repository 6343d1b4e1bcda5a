"""Every vector has length one, and one that cannot have it is an error of the engine."""

from __future__ import annotations

import numpy as np
import pytest

from memory_embedder.engine.llama import unit_vectors
from memory_embedder.errors import EmbedderError


def test_each_row_is_scaled_by_itself() -> None:
    rows = np.array([[3, 4, 0], [0, 0, 1e-6], [1e6, 1e6, 0]], dtype=np.float32)
    scaled = unit_vectors(rows)
    assert scaled.dtype == np.float32
    assert np.allclose(scaled, [[0.6, 0.8, 0], [0, 0, 1], [0.5**0.5, 0.5**0.5, 0]])


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf], ids=["zero", "not a number", "infinite"])
def test_a_row_without_a_finite_length_is_refused_whatever_the_others_are(value: float) -> None:
    rows = np.array([[1, 0], [value, 0]], dtype=np.float32)
    with pytest.raises(EmbedderError, match="not finite or has no length"):
        unit_vectors(rows)
