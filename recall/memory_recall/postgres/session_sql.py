"""Checks a new database session, and sets its run-time parameters, before any work is done in it."""

from collections.abc import Mapping

import asyncpg

from memory_recall.errors import DatabaseUnreachable, PoolerRefused
from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated


async def require_session(connection: Connection) -> None:
    """Refuse a pooler and a replica: locks, LISTEN and CONCURRENTLY belong to one session of the primary.

    When a session starts, Postgres tells the client the id of its server process. A pooler tells an invented id,
    because the client may get another server process for each transaction. Therefore every kind of pooler is recognised
    by an id that is not the real one.

    Raises:
        PoolerRefused: the id of the server process is not the one that the client was told.
        DatabaseUnreachable: the server is in recovery, and thus a replica.
    """
    with translated("looking at the session"):
        row = await connection.fetchrow("SELECT pg_backend_pid() AS pid, pg_is_in_recovery() AS in_recovery")
    if row is None or row["pid"] != connection.get_server_pid():
        raise PoolerRefused(
            "A connection pooler stands between this process and Postgres.",
            "Use the cluster's -rw service (port 5432 of the primary) instead of the pooler.",
        )
    if row["in_recovery"]:
        raise DatabaseUnreachable(
            "The server is a replica and takes no writes.", "Connect to the primary (the -rw service)."
        )


async def apply_settings(connection: Connection, settings: Mapping[str, str]) -> None:
    """Set run-time parameters of Postgres for the rest of the session."""
    with translated("preparing the session"):
        for setting, value in settings.items():
            await connection.execute("SELECT set_config($1, $2, false)", setting, value)


async def try_connection(connection: AnyConnection) -> None:
    """Wait until the server answers.

    Raises:
        MemoryIndexError: the connection was lost.
    """
    with translated("trying an idle connection"):
        await connection.fetchval("SELECT 1")


async def row_within(connection: AnyConnection, seconds: float, query: str, *bound: object) -> "asyncpg.Record | None":
    """Return the first row of a query, or None if the server has ended the query after `seconds`, which are above 0."""
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL statement_timeout = {max(round(seconds * 1000), 1)}")
            return await connection.fetchrow(query, *bound)
    except asyncpg.QueryCanceledError:
        return None
