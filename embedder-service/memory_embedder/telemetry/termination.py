"""Writes why a container ended to the file that Kubernetes shows as the container's termination message."""

from contextlib import suppress
from pathlib import Path

import orjson

from memory_embedder.errors import EmbedderError

_TERMINATION_LOG = Path("/dev/termination-log")


def write_termination_message(error: EmbedderError, log: Path = _TERMINATION_LOG) -> None:
    """Write the error's reason and message as JSON to the termination log, which exists only in Kubernetes."""
    if log.exists():
        with suppress(OSError):
            log.write_bytes(orjson.dumps({"reason": error.kind.reason, "message": error.message}))
