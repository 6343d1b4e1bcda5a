"""Opens a model file once, so that the bytes that are loaded are the bytes that were verified.

Whoever may write to a volume can exchange a file between two openings. Digest, header and weights are therefore read
from one open file. After the weights are loaded, the file's size and times are compared with those at the opening,
because writing to the file or removing it changes them. llama.cpp takes only a path, so it gets the path under /proc
that refers to the open file.
"""

import hashlib
import hmac
import os
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Self

from memory_embedder.errors import EmbedderError, ErrorKind, configuration_error

DIGEST_PATTERN = r"^(sha256:)?[0-9a-f]{64}$"
_PREFIX = "sha256:"


class ModelFile:
    """An open model file; `path` names the file in messages.

    Raises:
        EmbedderError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise configuration_error(
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
        """The descriptor of the open file. A child process that opens `reference` must inherit the descriptor."""
        return self._file.fileno()

    @property
    def reference(self) -> Path:
        """A path that leads to the open file, even if another file has taken its name."""
        return Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def size(self) -> int:
        """Number of bytes in the file when it was opened."""
        return self._state[0]

    def from_start(self) -> BufferedReader:
        """Return the open file, positioned at its first byte."""
        self._file.seek(0)
        return self._file

    def verified_digest(self, expected: str | None) -> str:
        """Compute and return the digest as `sha256:<hex>`, and check that it is `expected` unless `expected` is None.

        `expected` may lack the prefix `sha256:`.

        Raises:
            EmbedderError: the file cannot be read or has another digest.
        """
        try:
            actual = _PREFIX + hashlib.file_digest(self.from_start(), "sha256").hexdigest()
        except OSError as error:
            raise configuration_error(
                f"Model file {self.path} cannot be read ({error.strerror}); check its volume."
            ) from error
        if expected is not None and not hmac.compare_digest(actual, _PREFIX + expected.removeprefix(_PREFIX)):
            raise EmbedderError(
                ErrorKind.MODEL_NOT_VERIFIED,
                f"{self.path} has the digest {actual}, not {_PREFIX + expected.removeprefix(_PREFIX)}; "
                "it is damaged or another model. Fetch it again, or correct the digest.",
            )
        return actual

    def check_unchanged(self) -> None:
        """Check that nobody has changed the file since it was opened.

        Raises:
            EmbedderError: the file was changed, so the loaded bytes may differ from the verified bytes.
        """
        if self._current_state() != self._state:
            raise configuration_error(
                f"{self.path} was changed while it was being loaded; serve a file that nobody changes.",
            )

    def _current_state(self) -> tuple[int, int, int]:
        state = os.fstat(self.descriptor)
        return state.st_size, state.st_mtime_ns, state.st_ctime_ns
