"""Exact rankings without an index: by cosine, and by signs or first dimensions with candidates ordered anew.

The signs are those of pgvector's `binary_quantize`: one for a number above zero, zero for any other.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from memory_bench.index_study.designs import Kind, first_dimensions
from memory_bench.latency.synthetic import SEED

Places = NDArray[np.int64]
Vectors = NDArray[np.float16] | NDArray[np.float32]

_BLOCK = 50_000  # rows that are compared at a time


def nearest(rows: Vectors, questions: Vectors, count: int) -> Places:
    """Return the places of the `count` rows with the greatest cosines, the nearest first; shape (questions, count).

    Rows and questions have length one.
    """
    asked = questions.astype(np.float32)
    return _least(len(rows), count, lambda start, end: -(asked @ rows[start:end].astype(np.float32).T))


def nearest_by_signs(rows: Vectors, questions: Vectors, count: int) -> Places:
    """Return the places of the `count` rows whose signs differ least from a question's; shape (questions, count)."""
    packed, asked = _packed(rows), _packed(questions)

    def differing(start: int, end: int) -> NDArray[np.float32]:
        return np.stack(
            [np.bitwise_count(packed[start:end] ^ one).sum(axis=1, dtype=np.int32).astype(np.float32) for one in asked]
        )

    return _least(len(rows), count, differing)


def nearest_by_first_dimensions(rows: Vectors, questions: Vectors, count: int) -> Places:
    """Return the places of the `count` nearest rows by the cosine of their first dimensions alone."""
    kept = first_dimensions(rows.shape[1])
    return nearest(unit(rows[:, :kept]), unit(questions[:, :kept]), count)


def candidates(kind: Kind, rows: Vectors, questions: Vectors, count: int, mean: Vectors) -> Places:
    """Return the first candidates that an exact search by a kind's expression has; shape (questions, count)."""
    if kind == "halves":
        return nearest(rows, questions, count)
    if kind == "first dimensions":
        return nearest_by_first_dimensions(rows, questions, count)
    if kind == "centred signs":
        return nearest_by_signs(rows - mean, questions - mean, count)
    return nearest_by_signs(rows, questions, count)


def rotation(dimensions: int) -> NDArray[np.float32]:
    """Return a random rotation, shape (dimensions, dimensions), the same at every call."""
    drawn = np.random.default_rng([SEED, 5]).standard_normal((dimensions, dimensions))
    turn: NDArray[np.float32] = np.linalg.qr(drawn)[0].astype(np.float32)
    return turn


def unit(vectors: Vectors) -> NDArray[np.float32]:
    """Return vectors scaled to length one."""
    wide = vectors.astype(np.float32)
    scaled: NDArray[np.float32] = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return scaled


def _least(rows: int, count: int, distances: Callable[[int, int], NDArray[np.float32]]) -> Places:
    """Return the places of the least distances, computed block by block; of equal ones the first row."""
    kept: list[NDArray[np.float32]] = []
    places: list[Places] = []
    for start, end in _blocks(rows):
        found = distances(start, end)
        order = np.argsort(found, axis=1, kind="stable")[:, :count]
        kept.append(np.take_along_axis(found, order, axis=1))
        places.append(order + start)
    every, all_places = np.concatenate(kept, axis=1), np.concatenate(places, axis=1)
    best = np.argsort(every, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(all_places, best, axis=1)


def _blocks(rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, _BLOCK):
        yield start, min(start + _BLOCK, rows)


def _packed(vectors: Vectors) -> NDArray[np.uint8]:
    return np.packbits(vectors > 0, axis=1)
