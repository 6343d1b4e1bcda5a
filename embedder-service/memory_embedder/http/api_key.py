"""The optional API key, compared in constant time and read again when its file changes (secrets rotate)."""

from __future__ import annotations

import hmac
from pathlib import Path

from memory_embedder.errors import EmbedderError, ErrorKind


class ApiKey:
    """Checks `Authorization: Bearer ...`; without a file everything passes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._modified = -1
        self._key = b""

    def check(self, header: str | None) -> None:
        """Raises unless the caller knows the key."""
        if self._path is None:
            return
        key = self._current(self._path)
        scheme, _, value = (header or "").partition(" ")
        given = value.encode("utf-8", "surrogateescape")
        if not key or scheme.lower() != "bearer" or not hmac.compare_digest(given, key):
            raise EmbedderError(
                ErrorKind.UNAUTHORIZED, "The API key is missing or wrong; send it as 'Authorization: Bearer <key>'."
            )

    def _current(self, path: Path) -> bytes:
        try:
            modified = path.stat().st_mtime_ns
            if modified != self._modified:
                self._key = path.read_bytes().strip()
                self._modified = modified
        except OSError:
            return b""  # a key that cannot be read admits nobody
        return self._key
