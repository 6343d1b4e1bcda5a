"""SHA-256 digests of model files, which are verified before a file is mapped."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from memory_embedder.errors import EmbedderError, ErrorKind

_PREFIX = "sha256:"


def file_digest(path: Path) -> str:
    """Compute `sha256:<hex>` of a file.

    Raises:
        EmbedderError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return _PREFIX + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"Model file {path} cannot be read; mount it or fetch it with `memory-embedder fetch`.",
        ) from error


def verified_digest(path: Path, expected: str | None) -> str:
    """Compute the digest of a file and compare it with the expected one, if there is one, with or without `sha256:`.

    Raises:
        EmbedderError: the file cannot be read or has another digest.
    """
    actual = file_digest(path)
    if expected is not None and not hmac.compare_digest(actual, _PREFIX + expected.removeprefix(_PREFIX)):
        raise EmbedderError(
            ErrorKind.CONFIGURATION,
            f"{path} has the digest {actual}, not {_PREFIX + expected.removeprefix(_PREFIX)}; "
            "it is damaged or another model. Fetch it again, or correct the digest.",
        )
    return actual
