"""All errors that this package raises, as one closed family.

Errors of the database driver and the HTTP client are converted to these once, where they occur. Each error has a
CamelCase `reason`, which becomes a condition's reason in the cluster, a message that names its subject, a remedy, and
the exit code of a command that ends with it. No message holds memory text, a connection string or a password: messages
are made of names, numbers and error classes.
"""
# ruff: noqa: N818  (the class names are the reasons that users read in conditions)

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit status of a command; the operator acts on it."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    WAITING = 3
    NEEDS_PERSON = 4


class MemoryIndexError(Exception):
    """The base class of all errors that this package raises on purpose. A subclass's `reason` is its class name."""

    reason: ClassVar[str] = "Failed"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init_subclass__(cls) -> None:
        cls.reason = cls.__name__

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} {remedy}".strip())


class InvalidConfiguration(MemoryIndexError):
    """A setting is missing or malformed."""

    exit_code = ExitCode.USAGE


class InvalidInput(MemoryIndexError):
    """An argument or an input file cannot be used; nothing was changed."""


class DatabaseUnreachable(MemoryIndexError):
    """There is no usable connection: refused, lost, starting, full, or a replica where the primary is needed."""


class AuthenticationFailed(DatabaseUnreachable):
    """Postgres refused the credentials. While a password is being rotated, this passes by itself."""


class DatabaseRejected(MemoryIndexError):
    """Postgres refused a statement, and waiting does not help."""

    def __init__(self, message: str, remedy: str = "", *, sqlstate: str = "") -> None:
        super().__init__(message, remedy)
        self.sqlstate = sqlstate


class LockNotAvailable(MemoryIndexError):
    """Another session holds a lock, and waiting for it any longer would block other sessions."""


class PoolerRefused(MemoryIndexError):
    """The work needs one Postgres session to itself, but a connection pooler stands between client and server."""

    exit_code = ExitCode.NEEDS_PERSON


class DatabaseIdentityMismatch(MemoryIndexError):
    """The connection leads to another server or database than the one that was asked for; nothing was done there."""

    exit_code = ExitCode.NEEDS_PERSON


class TableTaken(MemoryIndexError):
    """The table belongs to another MemoryIndex."""

    exit_code = ExitCode.NEEDS_PERSON


class ExtensionMissing(MemoryIndexError):
    """pgvector has not been created in the database yet."""

    exit_code = ExitCode.WAITING


class SchemaBehind(MemoryIndexError):
    """The migrations that this work needs have not run."""

    exit_code = ExitCode.WAITING


class SchemaUnsupported(MemoryIndexError):
    """The table of memories lacks something that a migration cannot add."""

    exit_code = ExitCode.NEEDS_PERSON


class DimensionMismatch(MemoryIndexError):
    """The vector column, the model and the settings do not agree on the number of dimensions."""

    exit_code = ExitCode.NEEDS_PERSON


class ModelMismatch(MemoryIndexError):
    """The embedder serves another model than the one whose vectors the table holds."""

    exit_code = ExitCode.NEEDS_PERSON


class ExistingVectors(MemoryIndexError):
    """The table holds vectors whose model is not recorded."""

    exit_code = ExitCode.NEEDS_PERSON


class SwapInProgress(MemoryIndexError):
    """A model swap that is under way excludes this work."""

    exit_code = ExitCode.NEEDS_PERSON


class SwapRefused(MemoryIndexError):
    """The next model of a swap was refused, for the reason in the message; the active model stays."""

    exit_code = ExitCode.NEEDS_PERSON


class NoSwap(MemoryIndexError):
    """No model swap is in a stage that permits the requested operation."""


class EmbedderUnavailable(MemoryIndexError):
    """The embedder cannot be reached, is loading, draining, or answers with a server error."""

    def __init__(self, message: str, remedy: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after = retry_after


class EmbedderBusy(EmbedderUnavailable):
    """The embedder's queue is full; it asks to be called again after `retry_after` seconds."""


class EmbedderUnauthorized(MemoryIndexError):
    """The embedder refused our API key."""

    exit_code = ExitCode.NEEDS_PERSON


class EmbedderRejected(MemoryIndexError):
    """The embedder refused the inputs (empty, too long, malformed)."""


class EmbedderBroken(MemoryIndexError):
    """The embedder's answer is unusable: undecodable, not as many vectors as inputs, or not finite."""


class KubernetesUnreachable(MemoryIndexError):
    """The Kubernetes API server gives no usable answer."""


class KubernetesRejected(MemoryIndexError):
    """The Kubernetes API server refuses a request."""


class Interrupted(MemoryIndexError):
    """The worker was told to end before its work was done; finished work is stored."""


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first MemoryIndexError in an exception group, or its first error if it holds none."""
    leaves = list(_leaves(group))
    return next((error for error in leaves if isinstance(error, MemoryIndexError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
