"""Writes files that only their owner may read, and never leaves half a file behind."""

import os
import secrets
from pathlib import Path

from memory_recall.errors import InvalidInput

_OWNER_ONLY = 0o600


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, or replace an existing one in one step.

    After a crash the file holds either its former content or all of the new content.

    Raises:
        InvalidInput: the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written ({type(error).__name__}).", "Name a file in a folder that you may write to."
        ) from None
