"""Facts about the database, from the library's catalog queries; its errors become problems.

The connection URI is used here and nowhere else, and passed on inside an object that hides it.
"""

import asyncio

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import Problem
from memory_recall import status
from memory_recall.errors import MemoryIndexError
from memory_recall.postgres.connection import DsnText, connect

TIMEOUT_SECONDS = 30.0


async def inspect(dsn: str, table: str) -> status.DatabaseFacts | Problem:
    """Return what the catalog says now, or why it cannot be read; takes at most TIMEOUT_SECONDS."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            connection = await connect(
                DsnText(dsn), application_name="memory-operator", connect_timeout=15.0, command_timeout=20.0
            )
            try:
                found = await status.inspect(connection, table)
            finally:
                await connection.close(timeout=2.0)
    except MemoryIndexError as error:
        return Problem(Reason.from_code(error.reason, Reason.DATABASE_ERROR), error.message, error.remedy)
    except TimeoutError:
        return Problem(Reason.DATABASE_UNREACHABLE, f"The database did not answer within {TIMEOUT_SECONDS:g} s.")
    if found.in_recovery:
        message = "The connection leads to a replica, which cannot be written."
        return Problem(Reason.DATABASE_UNREACHABLE, message, "Point the connection URI at the -rw service.")
    return found
