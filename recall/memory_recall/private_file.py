"""Writes files that only their owner may read, and never leaves half a file behind."""

import os
import secrets
from pathlib import Path
from typing import BinaryIO

from memory_recall.errors import InvalidInput

_OWNER_ONLY = 0o600


def create_private_file(path: Path) -> BinaryIO:
    """Create a file with mode 0600, and open it for writing.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be created.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb")


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, or replace an existing one in one step.

    After a crash the file holds either its former content or all of the new content.

    Raises:
        InvalidInput: the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            with create_private_file(unfinished) as stream:
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
