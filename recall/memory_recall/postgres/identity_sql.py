"""Finds which database a connection has reached, by the server's system identifier, its cluster and its name.

Every server gets a system identifier of its own when it is initialised. Its replicas have the same identifier, so the
identifier stays the same after a failover. A server that was initialised by itself has another identifier, even if it
has a database of the same name. A physical copy, such as a restored backup, keeps the identifier of its original.
Therefore the setting `cluster_name` is compared as well: CloudNativePG sets it to the name of the Cluster, and so may
others. A copy whose cluster has the name of the original's cluster can be told apart by the server's address alone.

Some hosted servers keep the system identifier from everybody but their own administrators. There, a mark that the
owner of the database has put into the database's comment takes its place. It survives restarts, failovers and major
upgrades, and it is in physical copies, as the identifier is. A dump has it only with `pg_dump --create`. It proves that
the database is one that was so marked, and whoever owns a database can mark it as any other.
"""

import re
from dataclasses import dataclass
from typing import Self, TypeAlias
from urllib.parse import quote, unquote

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from memory_recall.errors import DatabaseIdentityMismatch, DatabaseRejected, InvalidConfiguration
from memory_recall.postgres.driver_errors import translated

_AnyConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
_IDENTITY = """
SELECT system_identifier::text AS system_identifier, current_database() AS name,
    current_setting('cluster_name') AS cluster_name
FROM pg_control_system()
"""
_MARKED = """
SELECT shobj_description(oid, 'pg_database') AS comment, datname::text AS name,
    current_setting('cluster_name') AS cluster_name
FROM pg_database WHERE datname = current_database()
"""
_FORBIDDEN = "42501"
MARK = "memory-index:"  # what a mark in the comment of a database begins with
MARKED = "marked-"  # what an identity that is taken from a mark begins with
_MARK = re.compile(rf"(?<!\S){MARK}([0-9a-z]{{16,24}})(?!\S)")
_SERVER = re.compile(rf"[0-9]+|{MARKED}[0-9a-z]{{16,24}}")


@dataclass(frozen=True)
class DatabaseIdentity:
    """A database of one Postgres server, written as `SYSTEM_IDENTIFIER/NAME` or `SYSTEM_IDENTIFIER@CLUSTER/NAME`.

    Where the server's system identifier cannot be read, `marked-MARK` stands in its place. `cluster_name` is the
    server's setting of this name, which may be empty; None stands for any.
    """

    system_identifier: str
    name: str
    cluster_name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text of the form `SYSTEM_IDENTIFIER/NAME` or `SYSTEM_IDENTIFIER@CLUSTER/NAME`.

        Raises:
            InvalidConfiguration: the text is not of this form.
        """
        server, _, name = text.partition("/")
        system_identifier, named, cluster_name = server.partition("@")
        if not (_SERVER.fullmatch(system_identifier) and name):
            raise InvalidConfiguration(
                "The database's identity is malformed.",
                "Write it as SYSTEM_IDENTIFIER/NAME or SYSTEM_IDENTIFIER@CLUSTER/NAME, as 7400000000000000000@pg/app.",
            )
        return cls(system_identifier, name, unquote(cluster_name) if named else None)

    def __str__(self) -> str:
        cluster = "" if self.cluster_name is None else f"@{quote(self.cluster_name, safe='')}"
        return f"{self.system_identifier}{cluster}/{self.name}"


async def read_identity(
    connection: _AnyConnection,
) -> DatabaseIdentity:
    """Return the identity of the database that this connection has reached.

    Raises:
        DatabaseRejected: the role may not read the server's system identifier, and the database has no mark.
    """
    try:
        with translated("reading the server's system identifier"):
            row = await connection.fetchrow(_IDENTITY)
    except DatabaseRejected as error:
        if error.sqlstate != _FORBIDDEN:
            raise
        return await _marked(connection)
    assert row is not None  # noqa: S101  (the function yields one row)
    return DatabaseIdentity(row["system_identifier"], row["name"], row["cluster_name"])


def is_unreadable(error: DatabaseRejected) -> bool:
    """Return whether an error of `read_identity` says that the role may not read which server this is."""
    return error.sqlstate == _FORBIDDEN


async def _marked(
    connection: _AnyConnection,
) -> DatabaseIdentity:
    with translated("reading the comment of the database"):
        row = await connection.fetchrow(_MARKED)
    mark = _MARK.search(row["comment"] or "") if row else None
    if row is None or mark is None:
        raise DatabaseRejected(
            "The role may not call pg_control_system(), which tells one Postgres server from another, and the "
            "database has no mark.",
            "As a superuser run GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC in the database. Where nobody "
            f"can, as its owner run COMMENT ON DATABASE ... IS '{MARK}' with 16 to 24 random digits and letters (a to "
            "z) behind it.",
            sqlstate=_FORBIDDEN,
        )
    return DatabaseIdentity(f"{MARKED}{mark[1]}", row["name"], row["cluster_name"])


async def require_identity(connection: "asyncpg.Connection[asyncpg.Record]", expected: DatabaseIdentity) -> None:
    """Check that a connection has reached the expected database.

    Raises:
        DatabaseIdentityMismatch: the connection has reached another server, or another database of the same server.
        DatabaseRejected: the role may not read the server's system identifier, and the database has no mark.
    """
    found = await read_identity(connection)
    if found.system_identifier != expected.system_identifier:
        raise DatabaseIdentityMismatch(
            f"The connection string leads to the Postgres server {found.system_identifier}, "
            f"not to {expected.system_identifier}; nothing was done.",
            "Correct the Secret that holds the connection string.",
        )
    if expected.cluster_name is not None and found.cluster_name != expected.cluster_name:
        raise DatabaseIdentityMismatch(
            f"The connection string leads to the server of cluster {found.cluster_name!r}, which is a physical copy or "
            f"the original of the one that is meant, of cluster {expected.cluster_name!r}; nothing was done.",
            "Correct the Secret that holds the connection string.",
        )
    if found.name != expected.name:
        raise DatabaseIdentityMismatch(
            f"The connection string leads to another database than {expected.name}; nothing was done.",
            "Correct the Secret that holds the connection string.",
        )
