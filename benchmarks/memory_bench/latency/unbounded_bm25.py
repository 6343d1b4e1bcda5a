"""Computes BM25 over all synthetic rows, to measure what the candidate budget of the lexical leg costs.

The texts are generated again from their seed, so nothing is read from the database. A row that the lexical leg returns
counts as correct if its exact score is at least that of the tenth best row, because rows of equal score are equally
good.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory_bench.latency.synthetic import BLOCK, Synthetic
from memory_recall.search.sql.bm25_scoring import K1, B

Scores: TypeAlias = NDArray[np.float64]
_WORDS_OF_CATEGORY = 1  # every row has the category "facts", a word of its search_vector
_TOP = 10


class UnboundedBm25:
    """The BM25 scores of every synthetic row; rows are numbered from one, like their ids in the database."""

    def __init__(self, rows: int) -> None:
        synthetic = Synthetic()
        blocks = [synthetic.lexemes(block).astype(np.int32) for block in range(rows // BLOCK)]
        self._words = np.concatenate(blocks)
        self._numbers = synthetic.numbers
        lengths = (self._words >= 0).sum(axis=1) + _WORDS_OF_CATEGORY
        self._damping: Scores = K1 * (1 - B + B * lengths / lengths.mean())

    def overlap(self, text: str, given: Sequence[int]) -> float:
        """Return which share of the ten best rows is found among the first ten ids of `given`.

        If fewer than ten rows match the question, only that many rows are compared. A row with the same score as the
        last of the best rows counts too.
        """
        scores = self.scores(text)
        wanted = min(_TOP, int(np.count_nonzero(scores)))
        if not wanted:
            return float(not given)
        worst = float(np.partition(scores, -wanted)[-wanted])
        right = sum(float(scores[row - 1]) >= worst - 1e-9 for row in given[:wanted])
        return right / wanted

    def scores(self, text: str) -> Scores:
        """Return the BM25 score of every row for a question; the shape is (rows,)."""
        rows = len(self._words)
        total: Scores = np.zeros(rows)
        for word in {self._numbers[one] for one in text.split() if one in self._numbers}:
            often = np.count_nonzero(self._words == word, axis=1)
            holding = np.flatnonzero(often)
            idf = np.log(1 + (rows - len(holding) + 0.5) / (len(holding) + 0.5))
            times = often[holding]
            total[holding] += idf * times * (K1 + 1) / (times + self._damping[holding])
        return total
