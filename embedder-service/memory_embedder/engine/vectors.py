"""Scales what llama.cpp computed for the texts of a batch, and tells which of the results cannot be used.

A text may make a model overflow: some published models do so for some texts, always for the same ones. Such a result
belongs to that text alone. It is marked instead of raised, so that the other texts of the batch, which may be those of
other callers, keep theirs.
"""

import math

import numpy as np

from memory_embedder.engine.protocol import Vectors
from memory_embedder.errors import configuration_error

_LAYER_EPSILON = 1e-5  # the default of PyTorch's layer_norm


def unit_vectors(vectors: Vectors) -> Vectors:
    """Scale each row to length one, in place, and return the array.

    A row that is not finite or has no length is made NaN throughout.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        for row in vectors:  # for the one row of a query this takes half of the time of operations on the whole array
            square = float(row.dot(row))
            if 0 < square < math.inf:
                np.divide(row, math.sqrt(square), out=row)
            else:
                row.fill(np.nan)
    return vectors


def cut_vectors(vectors: Vectors, dimensions: int, *, normalizes: bool) -> Vectors:
    """Return the first `dimensions` numbers of each row, for a model that was trained to be cut.

    With `normalizes`, each row is brought to mean 0 and variance 1 before (layer normalization without weights, as the
    card of nomic-embed-text-v1.5 computes it).
    """
    if normalizes:
        with np.errstate(over="ignore", invalid="ignore"):
            vectors = vectors - vectors.mean(axis=1, keepdims=True)
            vectors /= np.sqrt(np.square(vectors).mean(axis=1, keepdims=True) + _LAYER_EPSILON)
    return np.ascontiguousarray(vectors[:, :dimensions])


def finite_scores(scores: Vectors) -> Vectors:
    """Make each score of a reranker NaN that is not finite, in place, and return the array."""
    scores[~np.isfinite(scores)] = np.nan
    return scores


def unusable_rows(vectors: Vectors) -> list[int]:
    """Return the places of the rows that `unit_vectors` or `finite_scores` has made NaN."""
    return [int(place) for place in np.flatnonzero(np.isnan(vectors[:, 0]))]


def require_usable(vectors: Vectors) -> Vectors:
    """Return the vectors of texts that any working model can embed.

    Raises:
        EmbedderError: one of the vectors is unusable, so the model file or the kernels are broken.
    """
    if unusable_rows(vectors):
        raise configuration_error(
            "The model produced a vector that is not finite or has no length; fetch the file again, or serve another.",
        )
    return vectors
