"""Short batches are filled up to the width from which a CPU computes flash attention in tiles.

ggml takes its tiled kernel where a batch has at least 64 tokens (`GGML_FA_TILE_Q`) and a loop over single rows below.
With all-MiniLM-L6-v2 a text of 60 tokens took 58 ms and one of 64 took 30 ms on the same thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memory_embedder.engine.protocol import TokenIds

TILE = 64
_SLOW_ATTENTION = 10.0  # of n tokens at width h the row loop takes 10 n / h times what their matrices take, as measured


def worth_a_tile(width: int) -> int:
    """The least number of tokens for which a full tile takes less time than the row loop, at that width of the model.

    The solution of `n + 10 n^2 / width = 64`: on the left what n tokens cost, on the right what a tile costs, both in
    tokens' worth of matrix products.
    """
    factor = _SLOW_ATTENTION / width
    return math.ceil((math.sqrt(1.0 + 4.0 * TILE * factor) - 1.0) / (2.0 * factor))


def fill_tile(sequences: Sequence[TokenIds], least: int) -> Sequence[TokenIds]:
    """The batch, with one more sequence that nobody reads if it has at least `least` tokens and less than a tile.

    Sequences do not see each other, so the others' vectors stay what they are.
    """
    total = sum(map(len, sequences))
    if not least <= total < TILE:
        return sequences
    return [*sequences, np.full(TILE - total, sequences[0][0], dtype=np.int32)]
