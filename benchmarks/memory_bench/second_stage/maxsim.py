"""MaxSim, also called late interaction: how well the tokens of a query find a like among those of a memory.

O. Khattab and M. Zaharia, ColBERT: Efficient and effective passage search via contextualized late interaction over
BERT, SIGIR 2020. States are vectors, one a token, in arrays of shape (tokens, dimensions); scores take unit vectors.
"""

import numpy as np
from numpy.typing import NDArray

from memory_bench.second_stage.settings import VARIANTS

TokenStates = NDArray[np.float32]
_MARKERS = 2  # one token begins a text and one ends it


def scores(query: TokenStates, memory: TokenStates) -> NDArray[np.float32]:
    """Return the MaxSim score of a memory in each of `VARIANTS`: the mean over the query of the greatest cosine."""
    cosines = {"exact": query @ memory.T, "signs": query @ by_signs(memory).T}
    found = [(cosines[states] if tokens == "all" else _inner(cosines[states])) for tokens, states in VARIANTS]
    return np.array([best(one) for one in found], dtype=np.float32)


def best(cosines: NDArray[np.float32]) -> float:
    """Return the MaxSim score: the mean over the query's tokens, the rows, of the greatest cosine with a memory's."""
    return float(cosines.max(axis=1).mean())


def unit(states: TokenStates) -> TokenStates:
    """Scale each state to length one."""
    scaled: TokenStates = states / np.linalg.norm(states, axis=1, keepdims=True)
    return scaled


def by_signs(states: TokenStates) -> TokenStates:
    """Return unit vectors that have nothing but the signs of the states; zero counts as positive."""
    signs: TokenStates = (np.where(states >= 0, 1, -1) / np.sqrt(states.shape[1])).astype(np.float32)
    return signs


def packed(states: TokenStates) -> bytes:
    """Return the signs of states as bits, each state in whole bytes."""
    return np.packbits(states >= 0, axis=1).tobytes()


def unpacked(bits: bytes, dimensions: int) -> TokenStates:
    """Return what `by_signs` returns of the states whose signs these bits are."""
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(-1, -(-dimensions // 8))
    return by_signs(np.unpackbits(rows, axis=1, count=dimensions).astype(np.float32) - np.float32(0.5))


def _inner(cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Leave out the tokens that begin and end a text, unless it has no others."""
    rows, columns = (slice(1, -1) if count > _MARKERS else slice(None) for count in cosines.shape)
    return cosines[rows, columns]
