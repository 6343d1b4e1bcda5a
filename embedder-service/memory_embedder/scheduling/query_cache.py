"""A cache of recent query vectors: a query that a retry or a second hook repeats is not computed again.

An answer from the cache is faster, and counted, which would tell any caller whether somebody has sent a text before.
So a caller gets only what it has sent itself: entries belong to the API key that they were sent with, and where no key
is required, nothing is kept. The keys of entries are hashes with a secret that the process draws at its start, so that
a memory dump does not reveal the queries, not even to someone who guesses them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

from memory_embedder.engine.protocol import Vectors


class QueryCache:
    """A bounded map from a query's key to its vector, token count and truncation; used from the event loop only."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._secret = secrets.token_bytes(32)
        self._rows: OrderedDict[bytes, tuple[Vectors, int, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def key(self, caller: bytes, text: str) -> bytes:
        """Compute the 16-byte key of a caller's text; `caller` is its digest of 32 bytes."""
        return hashlib.blake2b(caller + text.encode(), key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> tuple[Vectors, int, bool] | None:
        """Return a query's vector, its number of tokens and whether it was truncated; None if it is not cached."""
        entry = self._rows.get(key)
        if entry is not None:
            self._rows.move_to_end(key)
        return entry

    def put(self, key: bytes, vector: Vectors, tokens: int, *, truncated: bool) -> None:
        """Keep a vector; beyond the bound the least recently used one is dropped."""
        self._rows[key] = (vector.copy(), tokens, truncated)
        self._rows.move_to_end(key)
        while len(self._rows) > self._entries:
            self._rows.popitem(last=False)
