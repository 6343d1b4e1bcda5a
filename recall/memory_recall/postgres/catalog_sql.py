"""Reads the catalog so that neither settings nor functions of others have a part in what is found."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated

SAFE_PATH = ("pg_catalog", "pg_temp")
"""The schemas of a search path by which nobody's functions, operators and types are found but Postgres's own.

Our functions have it, too. The temporary schema of whoever writes stands last. Where a path does not name it, Postgres
looks for types and relations there first, so a domain of the writer's that is called `text` would run the writer's
function with the rights of ours.
"""
_CLEANUP_SECONDS = 1.0  # for which a block that has failed, or was cancelled, waits for its rollback
_SETTINGS = (
    f"SELECT pg_catalog.set_config('search_path', '{', '.join(SAFE_PATH)}', true), "
    "pg_catalog.set_config('quote_all_identifiers', 'off', true)"
)


@asynccontextmanager
async def reading_catalog(connection: AnyConnection, action: str) -> AsyncIterator[None]:
    """Run the statements of the block with Postgres's own functions alone, and with definitions as we write them.

    Most columns of the catalog are of the type `name`, and most functions take `text`. A function of the same name that
    takes `name` is preferred to Postgres's own, whatever the order of the search path is. So whoever may create
    functions in a schema of the path could have one run with the rights of whoever migrates, works or recalls. In the
    block, the role's path plays no part, and what is not Postgres's own has to be named with its schema.

    With `quote_all_identifiers`, which a role may have, Postgres would quote each name in a definition, so that no rule
    would equal ours. The block is a transaction, or a part of the caller's transaction, that is rolled back. So the
    settings end with it, also behind a pooler, and it must not write. The driver's errors in it are converted as by
    `translated`, with what is attempted as `action`. If the block fails or is cancelled, the connection is closed
    unless the transaction can be rolled back within a second.
    """
    with translated(action):
        transaction = connection.transaction(readonly=True)
        begun = asyncio.ensure_future(transaction.start())
        try:
            await _completed(begun, connection)
            await connection.execute(_SETTINGS)
            yield
        except BaseException:
            # Neither may a failure of the rollback hide this error, nor a silent server keep who has been cancelled.
            if not connection.is_closed() and begun.exception() is None:
                await _soon_ended(asyncio.ensure_future(transaction.rollback()), connection)
            raise
        if not connection.is_closed():
            await _completed(asyncio.ensure_future(transaction.rollback()), connection)


async def _completed(step: asyncio.Future[None], connection: AnyConnection) -> None:
    """Await a step to its end even if the caller is cancelled, so that no pool gets back an open transaction."""
    try:
        await asyncio.shield(step)
    except asyncio.CancelledError:
        await _soon_ended(step, connection)
        raise


async def _soon_ended(step: asyncio.Future[None], connection: AnyConnection) -> None:
    """Await a step for a second at most, without its error. A connection on which it does not succeed is dropped."""
    try:
        await asyncio.wait({step}, timeout=_CLEANUP_SECONDS)
    finally:
        if not step.done() or step.exception() is not None:
            connection.terminate()
            step.cancel()
