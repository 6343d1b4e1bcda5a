"""Reads the catalog so that what is found does not depend on the settings of the role or of the session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated

_SETTINGS = "SELECT pg_catalog.set_config('quote_all_identifiers', 'off', true)"


@asynccontextmanager
async def reading_catalog(connection: AnyConnection) -> AsyncIterator[None]:
    """Run the statements of the block with the settings under which the catalog writes definitions as we write them.

    With `quote_all_identifiers`, which a role may have, Postgres would quote each name in a definition, so that no rule
    would equal ours. The block is a transaction, or a part of the caller's transaction, that is rolled back. So the
    settings end with it, also behind a pooler, and it must not write.

    Raises:
        DatabaseUnreachable: the connection failed.
    """
    with translated("reading the catalog"):
        transaction = connection.transaction(readonly=True)
        await transaction.start()
    try:
        with translated("reading the catalog"):
            await connection.execute(_SETTINGS)
        yield
    finally:
        with translated("reading the catalog"):
            await transaction.rollback()
