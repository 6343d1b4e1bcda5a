"""A cache of recent query vectors, so that a query which a caller repeats is not computed again.

An answer from the cache is faster and is counted in the metrics, which would tell any caller whether somebody has sent
a text before. So a caller gets only vectors of its own earlier queries: an entry belongs to the API key that the query
was sent with, and nothing is cached where no key is required. Entries are found by keyed hashes, so that the cache
holds no text; the secret of the hashes is drawn when the process starts.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

from memory_embedder.engine.protocol import Vectors


class QueryCache:
    """A cache of limited size: by key, a query's vector, number of tokens and whether it was truncated.

    It is used from the event loop only.
    """

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._secret = secrets.token_bytes(32)
        self._rows: OrderedDict[bytes, tuple[Vectors, int, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def key(self, caller: bytes, text: str) -> bytes:
        """Return the 16-byte key of a caller's text; `caller` is the 32-byte digest of the caller's API key."""
        return hashlib.blake2b(caller + text.encode(), key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> tuple[Vectors, int, bool] | None:
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
