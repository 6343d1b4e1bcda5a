"""A cache of recent query vectors, so that a caller's repeated query is not computed again.

An answer from the cache is faster than a computed one, so a common cache would reveal to a caller whether another
caller has sent the same text. Therefore a caller gets only vectors of its own earlier queries: an entry belongs to the
API key that the query was sent with, and nothing is cached if no key is required. An entry is found by a keyed hash of
its text, so that the cache holds no text. The secret key of the hashes is drawn at random when the process starts.

When the cache is full, the caller with the most entries loses one of them. So nobody's many queries displace the
entries of a caller that has fewer. But one that has not asked for an hour loses its entries first, since its key may
have been replaced.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from memory_embedder.engine.protocol import Vectors

_UNUSED_SECONDS = 3600.0  # since the last query of a caller, after which its entries are the first to go

CacheKey = tuple[bytes, bytes]  # the digest of the caller's API key, and the keyed hash of the text
CachedQuery = tuple[Vectors, int, bool]  # a query's vector, its number of tokens, and whether it was truncated


class QueryCache:
    """A cache of limited size. An entry is a query's vector, its number of tokens and whether it was truncated.

    It is used by the event loop only. `clock` returns the seconds of a monotonic clock.
    """

    def __init__(self, entries: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._rows: dict[bytes, OrderedDict[bytes, CachedQuery]] = {}  # by caller, and none of them empty
        self._used: dict[bytes, float] = {}  # when each of these callers asked last

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def key(self, caller: bytes, text: str) -> CacheKey:
        """Return the key of a query's entry; `caller` is the digest of the caller's API key."""
        return caller, hashlib.blake2b(text.encode(), key=self._secret, digest_size=16).digest()

    def get(self, key: CacheKey) -> CachedQuery | None:
        """Return a query's vector, its number of tokens and whether it was truncated, or None if it is not cached."""
        caller, text = key
        own = self._rows.get(caller)
        if own is None:
            return None
        self._used[caller] = self._clock()
        entry = own.get(text)
        if entry is not None:
            own.move_to_end(text)
        return entry

    def put(self, key: CacheKey, vector: Vectors, tokens: int, *, truncated: bool) -> None:
        """Store a query's vector; in a full cache drop the least recently used entry of a caller.

        It is one that has not asked for an hour, or else that with the most entries.
        """
        caller, text = key
        own = self._rows.setdefault(caller, OrderedDict())
        own[text] = (vector.copy(), tokens, truncated)
        own.move_to_end(text)
        now = self._used[caller] = self._clock()
        if len(self) > self._entries:
            chosen = min(self._used, key=lambda one: self._used[one])
            if now - self._used[chosen] <= _UNUSED_SECONDS:
                chosen = max(self._rows, key=lambda one: len(self._rows[one]))
            self._rows[chosen].popitem(last=False)
            if not self._rows[chosen]:
                del self._rows[chosen], self._used[chosen]


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
