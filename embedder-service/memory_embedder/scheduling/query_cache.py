"""A cache of recent query vectors, so that a caller's repeated query is not computed again.

An answer from the cache is faster than a computed one, so a common cache would reveal to a caller whether another
caller has sent the same text. Therefore a caller gets only vectors of its own earlier queries: an entry belongs to the
API key that the query was sent with, and nothing is cached if no key is required. An entry is found by a keyed hash of
its text, so that the cache holds no text. The secret key of the hashes is drawn at random when the process starts.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from memory_embedder.engine.protocol import Vectors

CachedQuery = tuple[Vectors, int, bool]  # a query's vector, its number of tokens, and whether it was truncated


class QueryCache:
    """A cache of limited size. An entry is a query's vector, its number of tokens and whether it was truncated.

    It is used by the event loop only.
    """

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._secret = secrets.token_bytes(32)
        self._rows: OrderedDict[bytes, CachedQuery] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def key(self, caller: bytes, text: str) -> bytes:
        """Return the 16-byte key of a query's entry; `caller` is the 32-byte digest of the caller's API key."""
        return hashlib.blake2b(caller + text.encode(), key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> CachedQuery | None:
        """Return a query's vector, its number of tokens and whether it was truncated, or None if it is not cached."""
        entry = self._rows.get(key)
        if entry is not None:
            self._rows.move_to_end(key)
        return entry

    def put(self, key: bytes, vector: Vectors, tokens: int, *, truncated: bool) -> None:
        """Store a query's vector; if the cache is full, drop the least recently used entry."""
        self._rows[key] = (vector.copy(), tokens, truncated)
        self._rows.move_to_end(key)
        while len(self._rows) > self._entries:
            self._rows.popitem(last=False)


def merge(computed: Vectors, missing: Sequence[int], found: Sequence[CachedQuery | None]) -> Vectors:
    """Return the vectors of all texts in their order, as an array of shape (texts, dimensions).

    `computed` has the vectors of the texts at the indices `missing`, and `found` those that were cached. A text with
    neither, because it was skipped, has a row of zeros, which the caller drops.
    """
    vectors = np.zeros((len(found), computed.shape[1]), dtype=np.float32)
    vectors[missing] = computed
    for index, entry in enumerate(found):
        if entry is not None:
            vectors[index] = entry[0]
    return vectors
