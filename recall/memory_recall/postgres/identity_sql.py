"""Finds which database a connection has reached, by the server's system identifier and the database's name.

Every server gets a system identifier of its own when it is initialised. Its replicas have the same identifier, so the
identifier stays the same after a failover. Any other server has a different identifier, even if it has a database of
the same name.
"""

from dataclasses import dataclass
from typing import Self

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from memory_recall.errors import DatabaseIdentityMismatch, DatabaseRejected, InvalidConfiguration
from memory_recall.postgres.driver_errors import translated

_IDENTITY = "SELECT system_identifier::text AS system_identifier, current_database() AS name FROM pg_control_system()"
_FORBIDDEN = "42501"


@dataclass(frozen=True)
class DatabaseIdentity:
    """A database of one Postgres server, written as `SYSTEM_IDENTIFIER/NAME`."""

    system_identifier: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text of the form `SYSTEM_IDENTIFIER/NAME`.

        Raises:
            InvalidConfiguration: the text is not of this form.
        """
        system_identifier, _, name = text.partition("/")
        if not (system_identifier.isdigit() and name):
            raise InvalidConfiguration(
                "The database's identity is malformed.",
                "Write it as SYSTEM_IDENTIFIER/NAME, as 7400000000000000000/app.",
            )
        return cls(system_identifier, name)

    def __str__(self) -> str:
        return f"{self.system_identifier}/{self.name}"


async def read_identity(
    connection: "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]",
) -> DatabaseIdentity:
    """Return the identity of the database that this connection has reached.

    Raises:
        DatabaseRejected: the role may not read the server's system identifier.
    """
    try:
        with translated("reading the server's system identifier"):
            row = await connection.fetchrow(_IDENTITY)
    except DatabaseRejected as error:
        if error.sqlstate != _FORBIDDEN:
            raise
        raise DatabaseRejected(
            "The role may not call pg_control_system(), which tells one Postgres server from another.",
            "As a superuser run GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC in the database.",
            sqlstate=_FORBIDDEN,
        ) from None
    assert row is not None  # noqa: S101  (the function yields one row)
    return DatabaseIdentity(row["system_identifier"], row["name"])


async def require_identity(connection: "asyncpg.Connection[asyncpg.Record]", expected: DatabaseIdentity) -> None:
    """Check that a connection has reached the expected database.

    Raises:
        DatabaseIdentityMismatch: the connection has reached another server, or another database of the same server.
        DatabaseRejected: the role may not read the server's system identifier.
    """
    found = await read_identity(connection)
    if found.system_identifier != expected.system_identifier:
        raise DatabaseIdentityMismatch(
            f"The connection string leads to the Postgres server {found.system_identifier}, "
            f"not to {expected.system_identifier}; nothing was done.",
            "Correct the Secret that holds the connection string.",
        )
    if found.name != expected.name:
        raise DatabaseIdentityMismatch(
            f"The connection string leads to another database than {expected.name}; nothing was done.",
            "Correct the Secret that holds the connection string.",
        )
