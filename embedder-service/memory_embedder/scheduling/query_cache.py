"""A cache of recent query vectors: a query that a retry or a second hook repeats is not computed again.

Its keys are hashes keyed with a secret that the process draws at its start, so that a memory dump does not reveal the
queries, not even to someone who guesses them.
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

    @property
    def enabled(self) -> bool:
        """Whether any vector is kept."""
        return self._entries > 0

    def __len__(self) -> int:
        return len(self._rows)

    def key(self, text: str) -> bytes:
        """Compute the 16-byte key of a text."""
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> tuple[Vectors, int, bool] | None:
        """Return a query's vector, its number of tokens and whether it was truncated; None if it is not cached."""
        entry = self._rows.get(key)
        if entry is not None:
            self._rows.move_to_end(key)
        return entry

    def put(self, key: bytes, vector: Vectors, tokens: int, *, truncated: bool) -> None:
        """Keep a vector; beyond the bound the least recently used one is dropped."""
        if not self.enabled:
            return
        self._rows[key] = (vector.copy(), tokens, truncated)
        self._rows.move_to_end(key)
        while len(self._rows) > self._entries:
            self._rows.popitem(last=False)
