"""All errors that this package raises on purpose.

Errors of the database driver and the HTTP client are converted to errors of this module once, where they occur. Each
error has a message that names what failed, a remedy, a CamelCase `reason`, and an exit code. The operator uses the
reason in a condition, and a command that fails with the error ends with the exit code. No message holds memory text, a
connection string or a password: messages are made of names, numbers and error classes.
"""
# ruff: noqa: N818  (the class names are the reasons that users read in conditions)

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit status of a command, by which the operator's Jobs decide whether to run the command again."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    WAITING = 3
    NEEDS_PERSON = 4
    UNDECIDED = 5


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
    """An argument or an input file cannot be used. Nothing was changed."""


class MissingExtra(MemoryIndexError, ImportError):
    """A part of this package needs an optional dependency that is not installed."""

    exit_code = ExitCode.USAGE


@contextmanager
def importing_extra(extra: str, purpose: str) -> Iterator[None]:
    """Import the packages of an optional dependency in the block. `purpose` names what needs them.

    Raises:
        MissingExtra: one of the packages is not installed. The remedy names the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{purpose} needs the package {error.name}, which is not installed.",
            f"Install memory-recall with the extra {extra}: pip install 'memory-recall[{extra}]'.",
        ) from None


class DatabaseUnreachable(MemoryIndexError):
    """There is no usable connection to Postgres.

    The connection was refused or lost, the server is starting or has no free connection, or the server is a replica
    where the primary is needed. `sqlstate` is empty if Postgres itself has not answered.
    """

    def __init__(self, message: str, remedy: str = "", *, sqlstate: str = "") -> None:
        super().__init__(message, remedy)
        self.sqlstate = sqlstate


class ServerNotVerified(DatabaseUnreachable):
    """The certificate of the database server was refused. While certificates rotate, the refusal is temporary."""


class ReplicaRefused(DatabaseUnreachable):
    """The server is a replica, which may not know the last changes, where an answer of the primary is needed."""


class DatabaseFull(DatabaseUnreachable):
    """Postgres has no room on its disk for what is to be stored. A worker waits until there is room again."""


class AuthenticationFailed(DatabaseUnreachable):
    """Postgres refused the credentials. While a password is being rotated, the refusal is temporary."""


class DatabaseRejected(MemoryIndexError):
    """Postgres refused a statement, and waiting does not help."""

    def __init__(self, message: str, remedy: str = "", *, sqlstate: str = "") -> None:
        super().__init__(message, remedy)
        self.sqlstate = sqlstate


class ProtocolViolation(MemoryIndexError):
    """The database server sends more than the operation may receive, or not what Postgres's protocol demands."""

    exit_code = ExitCode.NEEDS_PERSON


class LockNotAvailable(MemoryIndexError):
    """The operation needs a lock that another session holds, and waiting longer would block further sessions.

    `waited` is true if the lock was tried again until the time limit; callers must not try it again.
    """

    exit_code = ExitCode.WAITING

    def __init__(self, message: str, remedy: str = "", *, waited: bool = False) -> None:
        super().__init__(message, remedy)
        self.waited = waited


class PoolerRefused(MemoryIndexError):
    """A connection pooler is in use, but the operation needs a Postgres session of its own."""

    exit_code = ExitCode.NEEDS_PERSON


class DatabaseIdentityMismatch(MemoryIndexError):
    """The connection leads to another server or database than is configured. Nothing was changed there."""

    exit_code = ExitCode.NEEDS_PERSON


class TableTaken(MemoryIndexError):
    """The table belongs to another MemoryIndex."""

    exit_code = ExitCode.NEEDS_PERSON


class ExtensionMissing(MemoryIndexError):
    """The extension pgvector has not been created in the database yet."""

    exit_code = ExitCode.WAITING


class SchemaBehind(MemoryIndexError):
    """Migrations that the operation needs have not run yet."""

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
    """A model swap is under way, and the operation is not possible until the swap has ended."""

    exit_code = ExitCode.NEEDS_PERSON


class SwapRefused(MemoryIndexError):
    """The next model of a swap was refused, for the reason in the message. The active model stays active."""

    exit_code = ExitCode.NEEDS_PERSON


class SwapUndecided(MemoryIndexError):
    """The labelled questions are too few to tell whether the next model may become active. The active model stays."""

    exit_code = ExitCode.UNDECIDED


class NoSwap(MemoryIndexError):
    """No model swap is in a stage that permits the requested operation."""


class Resend(Enum):
    """How often a request may be sent again at once, because another pod of the embedder may answer it."""

    NEVER = "never"
    ONCE = "once"  # the connection was lost, perhaps because the request itself ended the pod
    FREELY = "freely"  # the pod never took the request


class EmbedderUnavailable(MemoryIndexError):
    """The embedder cannot be reached, is loading its model, is shutting down, or answers with a server error.

    `retry_after` is the number of seconds after which to call again, or None if the embedder does not say. `resend`
    says whether the request may be sent again before that.
    """

    def __init__(
        self, message: str, remedy: str = "", *, retry_after: float | None = None, resend: Resend = Resend.NEVER
    ) -> None:
        super().__init__(message, remedy)
        self.retry_after = retry_after
        self.resend = resend


class EmbedderBusy(EmbedderUnavailable):
    """The embedder's queue is full."""


class EmbedderUnauthorized(MemoryIndexError):
    """The embedder refused the API key, or there is no API key to send."""

    exit_code = ExitCode.NEEDS_PERSON


class EmbedderRejected(MemoryIndexError):
    """The embedder refused a text, for instance because it is empty or too long."""


class UnusableText(EmbedderRejected):
    """The embedder's model computes no finite vector for a text, now or ever."""


class EmptyText(EmbedderRejected):
    """A text has nothing but spaces and characters that show nothing."""


class RowRefused(MemoryIndexError):
    """A constraint or a trigger of the table refuses the update that stores a row's vector."""


class VectorUndone(MemoryIndexError):
    """A trigger of the table's owner skips the update that stores a row's vector, or clears the vector."""


class EmbedderBroken(MemoryIndexError):
    """The embedder's answer cannot be decoded, has the wrong number of vectors, or has values that are not finite."""


class KubernetesUnreachable(MemoryIndexError):
    """The Kubernetes API server gives no usable answer."""


class KubernetesRejected(MemoryIndexError):
    """The Kubernetes API server refuses a request."""


class Interrupted(MemoryIndexError):
    """The worker was told to end before its work was done. All that was finished by then is stored."""


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first MemoryIndexError in an exception group or, if there is none, the group's first error."""
    leaves = list(_leaves(group))
    return next((error for error in leaves if isinstance(error, MemoryIndexError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
