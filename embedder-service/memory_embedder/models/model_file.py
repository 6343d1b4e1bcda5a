"""A model file that is opened once, so that what is loaded is what was verified.

Whoever may write to a volume can exchange a file between two openings. Digest, header and weights are therefore read
from one open file, and its size and its times are compared once the weights are loaded: a write to the file itself
changes them, and so does a removal. llama.cpp takes only a path, so it gets the one that the kernel keeps for the open
file.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Self

from memory_embedder.errors import EmbedderError, ErrorKind

_PREFIX = "sha256:"


class ModelFile:
    """An open model file; `path` names it in messages.

    Raises:
        EmbedderError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                f"Model file {path} cannot be opened ({error.strerror}); mount it or fetch it with "
                "`memory-embedder fetch`.",
            ) from error
        self._state = self._current_state()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def descriptor(self) -> int:
        """Number of the open file, which a child process must inherit to open `reference`."""
        return self._file.fileno()

    @property
    def reference(self) -> Path:
        """Path that opens this very file, whatever has its name by now."""
        return Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._state[0]

    def from_start(self) -> BufferedReader:
        """Return the file, positioned at its first byte."""
        self._file.seek(0)
        return self._file

    def verified_digest(self, expected: str | None) -> str:
        """Compute `sha256:<hex>` and compare it with the expected digest, if there is one, with or without `sha256:`.

        Raises:
            EmbedderError: the file cannot be read or has another digest.
        """
        try:
            actual = _PREFIX + hashlib.file_digest(self.from_start(), "sha256").hexdigest()
        except OSError as error:
            raise EmbedderError(
                ErrorKind.CONFIGURATION, f"Model file {self.path} cannot be read ({error.strerror}); check its volume."
            ) from error
        if expected is not None and not hmac.compare_digest(actual, _PREFIX + expected.removeprefix(_PREFIX)):
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                f"{self.path} has the digest {actual}, not {_PREFIX + expected.removeprefix(_PREFIX)}; "
                "it is damaged or another model. Fetch it again, or correct the digest.",
            )
        return actual

    def check_unchanged(self) -> None:
        """Check that nobody has changed the file since it was opened.

        Raises:
            EmbedderError: somebody has, so what was read may not be what was verified.
        """
        if self._current_state() != self._state:
            raise EmbedderError(
                ErrorKind.CONFIGURATION,
                f"{self.path} was changed while it was being loaded; serve a file that nobody changes.",
            )

    def _current_state(self) -> tuple[int, int, int]:
        state = os.fstat(self.descriptor)
        return state.st_size, state.st_mtime_ns, state.st_ctime_ns
