"""The vectors of the study: modelled ones, and rows that are made from the vectors of real texts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory_bench.index_study.rankings import nearest, rotation, unit
from memory_bench.latency.synthetic import BLOCK, SEED, Floats, Synthetic

Halves: TypeAlias = NDArray[np.float16]

_NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Vectors:
    """Rows, shape (rows, dimensions), and questions about them, shape (questions, dimensions), all of length one.

    `centred` says whether the rows' mean is to be subtracted before signs are taken, as one of the designs does.
    """

    name: str
    rows: Halves
    questions: Halves
    centred: bool

    @property
    def dimensions(self) -> int:
        """The number of dimensions."""
        return int(self.rows.shape[1])

    @property
    def mean(self) -> Halves:
        """The mean of all rows, shape (dimensions,)."""
        found: Halves = self.rows.mean(axis=0, dtype=np.float64).astype(np.float16)
        return found


def modelled(dimensions: int, rows: int, questions: int, say: Callable[[str], None]) -> Vectors:
    """Return the vectors of the latency benchmark, cut to their first dimensions and turned by a fixed rotation.

    Raises:
        ValueError: `rows` is not a multiple of the block size, 5,000.
    """
    if rows % BLOCK:
        raise ValueError(f"rows must be a multiple of {BLOCK}")
    synthetic, turn = Synthetic(), rotation(dimensions)
    made = np.empty((rows, dimensions), dtype=np.float16)
    for block in range(rows // BLOCK):
        made[block * BLOCK : (block + 1) * BLOCK] = unit(synthetic.vectors(block)[:, :dimensions]) @ turn
    say(f"{rows:,} modelled vectors of {dimensions} dimensions")
    asked = unit(synthetic.questions(rows, questions).vectors[:, :dimensions]) @ turn
    return Vectors("modelled", made, asked.astype(np.float16), centred=False)


def widened(texts: Floats, questions: Floats, rows: int) -> Vectors:
    """Return the vectors of texts as the first rows, and rows made from their differences as all others."""
    made = made_rows(texts, max(rows - len(texts), 0))
    every = np.concatenate([texts[:rows], made]).astype(np.float16)
    return Vectors("real", every, questions.astype(np.float16), centred=True)


def made_rows(texts: Floats, count: int) -> Floats:
    """Return `count` vectors: of a text, plus the difference of two other neighbouring texts, over the root of two.

    Texts are neighbours if one is among the ten nearest of the other. So two rows that are made from one text are as
    far apart as neighbours are.
    """
    near = nearest(texts.astype(np.float16), texts.astype(np.float16), _NEIGHBOURS + 1)
    chance = np.random.default_rng([SEED, 6])
    from_text, other = chance.integers(0, len(texts), (2, count))
    neighbour = near[other, chance.integers(1, _NEIGHBOURS + 1, count)]
    return unit(texts[from_text] + (texts[neighbour] - texts[other]) / np.float32(np.sqrt(2)))
