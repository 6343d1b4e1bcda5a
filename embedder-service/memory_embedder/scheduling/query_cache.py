"""Recent query vectors, so that a prompt repeated by a retry or a second hook costs nothing.

Keys are keyed hashes under a secret that this process drew at its start: a memory dump does not tell what was asked,
not even to someone who guesses.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

from memory_embedder.engine.protocol import Vectors


class QueryCache:
    """A bounded map from a query to its vector and token count; used from the event loop only."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._secret = secrets.token_bytes(32)
        self._found: OrderedDict[bytes, tuple[Vectors, int, bool]] = OrderedDict()

    @property
    def enabled(self) -> bool:
        """Whether anything is kept."""
        return self._entries > 0

    def __len__(self) -> int:
        return len(self._found)

    def key(self, text: str) -> bytes:
        """What stands for a text."""
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> tuple[Vectors, int, bool] | None:
        """(vector, tokens, truncated) of a query seen lately."""
        entry = self._found.get(key)
        if entry is not None:
            self._found.move_to_end(key)
        return entry

    def put(self, key: bytes, vector: Vectors, tokens: int, *, truncated: bool) -> None:
        """Remembers; the least recently used goes first."""
        if not self.enabled:
            return
        self._found[key] = (vector.copy(), tokens, truncated)
        self._found.move_to_end(key)
        while len(self._found) > self._entries:
            self._found.popitem(last=False)
