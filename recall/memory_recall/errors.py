"""Everything that can go wrong, as one closed family.

Errors of drivers and HTTP clients are converted to these once, where they enter. Each carries a CamelCase `reason` (it
becomes a condition's reason in the cluster), a message that names the thing, and a remedy. None ever carries memory
text, a connection string or a password: whoever raises one builds the message from names, numbers and error classes.
"""
# ruff: noqa: N818  (the class names are the reasons that users read in conditions)

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What the process's exit status tells the operator."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    WAITING = 3
    NEEDS_PERSON = 4


class MemoryIndexError(Exception):
    """The base of all errors that this package raises on purpose."""

    reason: ClassVar[str] = "Failed"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} {remedy}".strip())


class InvalidConfiguration(MemoryIndexError):
    """A setting is missing or malformed."""

    reason = "InvalidConfiguration"
    exit_code = ExitCode.USAGE


class InvalidInput(MemoryIndexError):
    """What the caller handed in cannot be used; nothing was changed."""

    reason = "InvalidInput"


class DatabaseUnreachable(MemoryIndexError):
    """No usable connection right now: refused, lost, starting, full, or a replica where the primary is needed."""

    reason = "DatabaseUnreachable"


class AuthenticationFailed(DatabaseUnreachable):
    """Postgres refused the credentials; during a rotation this passes by itself."""

    reason = "AuthenticationFailed"


class DatabaseRejected(MemoryIndexError):
    """Postgres refused a statement for a reason that waiting does not cure."""

    reason = "DatabaseRejected"

    def __init__(self, message: str, remedy: str = "", *, sqlstate: str = "") -> None:
        super().__init__(message, remedy)
        self.sqlstate = sqlstate


class LockNotAvailable(MemoryIndexError):
    """Another session holds a lock for longer than we are willing to make others queue behind us."""

    reason = "LockNotAvailable"


class PoolerRefused(MemoryIndexError):
    """The work needs one session, and a connection pooler stands in between."""

    reason = "PoolerRefused"
    exit_code = ExitCode.NEEDS_PERSON


class ExtensionMissing(MemoryIndexError):
    """pgvector has not been created in the database yet."""

    reason = "ExtensionMissing"
    exit_code = ExitCode.WAITING


class SchemaBehind(MemoryIndexError):
    """The migrations have not run as far as this work needs."""

    reason = "SchemaBehind"
    exit_code = ExitCode.WAITING


class SchemaUnsupported(MemoryIndexError):
    """The table of memories lacks something that we cannot add."""

    reason = "SchemaUnsupported"
    exit_code = ExitCode.NEEDS_PERSON


class DimensionMismatch(MemoryIndexError):
    """Column, model and setting do not agree about the number of dimensions."""

    reason = "DimensionMismatch"
    exit_code = ExitCode.NEEDS_PERSON


class ModelMismatch(MemoryIndexError):
    """The embedder serves another model than the one whose vectors the table holds."""

    reason = "ModelMismatch"
    exit_code = ExitCode.NEEDS_PERSON


class ExistingVectors(MemoryIndexError):
    """The table holds vectors of which nobody recorded the model."""

    reason = "ExistingVectors"
    exit_code = ExitCode.NEEDS_PERSON


class SwapInProgress(MemoryIndexError):
    """A model swap is under way that this work would collide with."""

    reason = "SwapInProgress"
    exit_code = ExitCode.NEEDS_PERSON


class SwapRefused(MemoryIndexError):
    """The next model did not pass the gate; the active one stays."""

    reason = "SwapRefused"
    exit_code = ExitCode.NEEDS_PERSON


class NoSwap(MemoryIndexError):
    """There is no swap that this could be done to."""

    reason = "NoSwap"


class EmbedderUnavailable(MemoryIndexError):
    """The embedder cannot be reached, is loading, draining, or answers with a server error."""

    reason = "EmbedderUnavailable"

    def __init__(self, message: str, remedy: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after = retry_after


class EmbedderBusy(EmbedderUnavailable):
    """The embedder's queue is full; `retry_after` seconds is what it asked for."""

    reason = "EmbedderBusy"


class EmbedderUnauthorized(MemoryIndexError):
    """The embedder refused our API key."""

    reason = "EmbedderUnauthorized"
    exit_code = ExitCode.NEEDS_PERSON


class EmbedderRejected(MemoryIndexError):
    """The embedder refused these inputs (empty, too long, malformed)."""

    reason = "EmbedderRejected"


class EmbedderBroken(MemoryIndexError):
    """The embedder's answer is not one: undecodable, not as many vectors as inputs, or not finite."""

    reason = "EmbedderBroken"


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that says most: one of ours if there is any."""
    leaves = list(_leaves(group))
    return next((error for error in leaves if isinstance(error, MemoryIndexError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
