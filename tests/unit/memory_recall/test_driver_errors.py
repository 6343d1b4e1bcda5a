"""Each error of the driver becomes the right error of ours and quotes nothing."""

import asyncpg
import pytest

from memory_recall.errors import (
    AuthenticationFailed,
    DatabaseFull,
    DatabaseRejected,
    DatabaseUnreachable,
    InvalidConfiguration,
    LockNotAvailable,
    MemoryIndexError,
)
from memory_recall.postgres.driver_errors import translate


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.InvalidPasswordError("canary"), AuthenticationFailed),
        (asyncpg.InvalidCatalogNameError("canary"), InvalidConfiguration),
        (asyncpg.CannotConnectNowError("canary"), DatabaseUnreachable),
        (asyncpg.AdminShutdownError("canary"), DatabaseUnreachable),
        (asyncpg.DiskFullError("canary"), DatabaseFull),
        (asyncpg.TooManyConnectionsError("canary"), DatabaseUnreachable),
        (asyncpg.ReadOnlySQLTransactionError("canary"), DatabaseUnreachable),
        (asyncpg.ConnectionDoesNotExistError("canary"), DatabaseUnreachable),
        (asyncpg.InterfaceError("canary"), DatabaseUnreachable),
        (asyncpg.InternalClientError("canary"), DatabaseUnreachable),
        (ConnectionRefusedError("canary"), DatabaseUnreachable),
        (TimeoutError("canary"), DatabaseUnreachable),
        (asyncpg.DeadlockDetectedError("canary"), LockNotAvailable),
        (asyncpg.LockNotAvailableError("canary"), LockNotAvailable),
        (asyncpg.SerializationError("canary"), LockNotAvailable),
        (asyncpg.UniqueViolationError("canary"), DatabaseRejected),
        (asyncpg.InsufficientPrivilegeError("canary"), DatabaseRejected),
    ],
)
def test_each_kind_of_failure_has_its_own_error(error: Exception, expected: type[MemoryIndexError]) -> None:
    result = translate(error, "testing")
    assert type(result) is expected
    assert "testing" in str(result) or isinstance(result, InvalidConfiguration)
    assert "canary" not in str(result)
    assert "canary" not in repr(error)


@pytest.mark.parametrize("kind", [asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError])
def test_prepared_statements_that_a_pooler_has_mixed_up_are_explained(kind: type[Exception]) -> None:
    """Asyncpg prepares statements by default, and a transaction pooler gives the next transaction another session."""
    result = translate(kind("canary"), "testing")
    assert type(result) is DatabaseRejected
    assert "statement_cache_size=0" in result.remedy
