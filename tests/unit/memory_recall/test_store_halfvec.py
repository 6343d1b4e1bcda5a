"""Vectors survive the wire format, and what half precision cannot hold is refused."""

import numpy as np
import pytest
from pgvector import HalfVector

from memory_recall.errors import EmbedderBroken
from memory_recall.indexing.halfvec import decode_halfvec, encode_halfvecs


def test_the_format_is_pgvectors_own() -> None:
    vectors = np.random.default_rng(1).standard_normal((5, 384)).astype(np.float32)
    for row, encoded in zip(vectors, encode_halfvecs(vectors), strict=True):
        assert encoded == HalfVector(row).to_binary()
        assert np.array_equal(decode_halfvec(encoded), row.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_a_number_that_half_precision_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(EmbedderBroken):
        encode_halfvecs(np.array([[0.5, value]], dtype=np.float32))
